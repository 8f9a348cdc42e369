import { useEffect } from "preact/hooks";
import { Header } from "./header";
import { navigate, readLink, useLink } from "./link";
import { Empty } from "./parts/empty";
import { usePrinting } from "./printing";
import type { Payload } from "./payload";
import type { View } from "./view";
import { VIEWS } from "./views";

/** The report page: a menu of its views, and the chosen view. */
export function App({ payload }: { payload: Payload }) {
  const { page } = payload;
  const link = useLink();
  const offered = VIEWS.filter((view) => view.isOffered(page));
  const chosen = offered.find((view) => view.name === link.view) ?? offered[0];
  const reason = chosen?.whyEmpty(page) ?? { title: "This report is empty." };
  useKeys(offered.filter((view) => view.hasContent(page)));
  const titles = new Map(offered.map(({ name, title }) => [name, title]));
  if (usePrinting()) {
    return (
      <>
        <Header page={page} offered={[]} />
        {offered
          .filter((view) => view.hasContent(page))
          .map(({ name, title, component: Printed }) => (
            <main class="printed" data-view={name} key={name} aria-label={title}>
              <h2 class="printed-title">{title}</h2>
              <Printed payload={payload} offered={titles} />
            </main>
          ))}
      </>
    );
  }
  return (
    <>
      <Header page={page} offered={offered} chosen={chosen} />
      <main data-view={chosen?.name}>
        {chosen?.hasContent(page) ? (
          <chosen.component payload={payload} offered={titles} key={chosen.name} />
        ) : (
          <Empty title={reason.title}>{reason.remedy}</Empty>
        )}
      </main>
    </>
  );
}

/** Keyboard shortcuts: 1 to 9 open a view, ? opens the help; inactive in text fields. */
function useKeys(offered: View[]): void {
  const names = offered.map((view) => view.name).join(" ");
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
      const view = names.split(" ")[Number(event.key) - 1];
      if (event.key === "?") document.getElementById("help")?.click();
      else if (view) navigate({ view, module: readLink().module });
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [names]);
}

function isWriting(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, select, textarea, dialog[open]") !== null;
}
