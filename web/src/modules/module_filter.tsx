import { linkTo, readLink } from "../link";
import type { PageData } from "../page_data";
import { Name } from "../parts/name";
import { chooseModule, type ChosenModule } from "./chosen_module";
import "./modules.css";

/** The module to which the views are filtered, a button that removes the filter, and links to these views. */
export function ModuleFilter({ page, chosen }: { page: PageData; chosen: ChosenModule }) {
  const { view, module } = readLink();
  const views = [
    ["modules", "Modules", true],
    ["operators", "Operators", !!page.report?.operators.length],
    ["kernels", "Kernels", !!page.report?.kernels.length],
    ["timeline", "Timeline", !!page.timeline?.spans.begins.length],
  ] as const;
  return (
    <div class="module-filter">
      <span class="module-chip" role="status">
        Module <Name text={chosen.title} maxLength={80} />
        <button type="button" aria-label="Show all modules" onClick={() => chooseModule(null)}>
          ×
        </button>
      </span>
      {views
        .filter(([name, , isFilled]) => isFilled && name !== view)
        .map(([name, title]) => (
          <a key={name} href={linkTo({ view: name, module })}>
            {title}
          </a>
        ))}
    </div>
  );
}
