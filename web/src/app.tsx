import { linkTo, useLink } from "./link";
import { Empty } from "./parts/empty";
import { Name } from "./parts/name";
import type { Payload } from "./payload";
import { VIEWS } from "./views";

/** The page: a menu of the views that this run has, and the chosen one. */
export function App({ payload }: { payload: Payload }) {
  const { page } = payload;
  const link = useLink();
  const offered = VIEWS.filter((view) => view.isThere(page));
  const chosen = offered.find((view) => view.name === link.view) ?? offered[0];
  const Chosen = chosen?.component;
  return (
    <>
      <header>
        <h1>
          <Name text={page.title} />
        </h1>
        <nav aria-label="Views">
          {offered.map((view) => (
            <a key={view.name} href={linkTo({ view: view.name })} aria-current={view === chosen ? "page" : undefined}>
              {view.title}
            </a>
          ))}
        </nav>
      </header>
      <main data-view={chosen?.name}>
        {Chosen ? <Chosen payload={payload} key={chosen.name} /> : <Empty title="There is nothing in this report." />}
      </main>
    </>
  );
}
