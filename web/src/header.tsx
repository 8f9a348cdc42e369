import { useRef } from "preact/hooks";
import { counted, formatCount } from "./format";
import { linkTo, readLink } from "./link";
import type { PageData, RunReport } from "./page_data";
import { Name } from "./parts/name";
import { Explained } from "./parts/term";
import { ThemeButton } from "./parts/theme_button";
import { printAll } from "./printing";
import { TIMELINE_KEYS } from "./timeline/gestures";
import type { View } from "./view";

interface HeaderProps {
  page: PageData;
  offered: View[];
  chosen?: View;
}

/** The header of the page: the run, the menu, and notes on all views. */
export function Header({ page, offered, chosen }: HeaderProps) {
  const filled = offered.filter((view) => view.hasContent(page));
  return (
    <header>
      <div class="title-line">
        <h1>
          <Name text={page.title} maxLength={80} />
        </h1>
        <Facts page={page} />
        <span class="title-buttons">
          <button type="button" title="Print all views with content (Ctrl+P)" onClick={printAll}>
            Print
          </button>
          <ThemeButton />
          <Help offered={filled} />
        </span>
      </div>
      <nav aria-label="Views">
        {offered.map((view) => (
          <Tab key={view.name} view={view} page={page} isChosen={view === chosen} at={filled.indexOf(view)} />
        ))}
      </nav>
      {page.overview.warnings.map((warning) => (
        <p class="page-note warning" key={warning}>
          {warning}
        </p>
      ))}
      {page.notes.map((note) => (
        <p class="page-note" key={note}>
          {note}
        </p>
      ))}
    </header>
  );
}

interface TabProps {
  view: View;
  page: PageData;
  isChosen: boolean;
  /** Position among the views with content, for the key; -1 without content. */
  at: number;
}

/** A tab of the menu: a link, or greyed with the reason for having no content. */
function Tab({ view, page, isChosen, at }: TabProps) {
  const { title, remedy = "" } = view.whyEmpty(page);
  if (at < 0) return <Explained class="empty-tab" word={view.title} meaning={`${title} ${remedy}`.trim()} />;
  const { module } = readLink(); // a filter of several views
  return (
    <a href={linkTo({ view: view.name, module })} aria-current={isChosen ? "page" : undefined}>
      {view.title} <kbd aria-hidden="true">{at < 9 ? at + 1 : ""}</kbd>
    </a>
  );
}

function Facts({ page: { report } }: { page: PageData }) {
  if (!report) return null;
  const { run } = report;
  const devices = [...new Set(report.ranks.map((row) => row.device_name).filter((name) => name !== null))];
  const of = run.world_size && run.world_size > run.ranks.length ? ` of ${run.world_size}` : "";
  const facts = [
    `${counted(run.ranks.length || 1, "rank")}${of}`,
    run.hosts.length > 1 ? counted(run.hosts.length, "host") : "",
    devices.join(", "),
    stepsOf(run),
  ];
  return (
    <p class="quiet facts">
      <Name text={facts.filter(Boolean).join(" · ")} />
    </p>
  );
}

function stepsOf({ num_steps: numProfiled, all_steps: all }: RunReport["run"]): string {
  if (!numProfiled) return "no steps";
  if (!all || all.num_steps < numProfiled) return counted(numProfiled, "step");
  return `${formatCount(numProfiled)} of ${counted(all.num_steps, "step")} profiled`;
}

function Help({ offered }: { offered: View[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  return (
    <>
      <button type="button" id="help" aria-label="Keys of this page" onClick={() => dialog.current?.showModal()}>
        ?
      </button>
      <dialog ref={dialog} aria-labelledby="help-title">
        <h2 id="help-title">Keys</h2>
        <dl class="keys">
          {offered.slice(0, 9).map((view, at) => (
            <KeyLine key={view.name} keys={[`${at + 1}`]} does={view.title} />
          ))}
          <KeyLine keys={["Tab"]} does="next link, button, bar or table" />
          <KeyLine keys={["←", "→"]} does="in a chart: the previous or next step or rank" />
          <KeyLine keys={["Enter"]} does="in a chart: show the step in the timeline" />
          {offered.some((view) => view.name === "timeline") && <TimelineKeys />}
          <KeyLine keys={["?"]} does="this list" />
        </dl>
        <form method="dialog">
          <button type="submit">Close</button>
        </form>
      </dialog>
    </>
  );
}

function TimelineKeys() {
  return (
    <>
      {TIMELINE_KEYS.map(([keys, does]) => (
        <KeyLine key={does} keys={keys} does={`timeline: ${does}`} />
      ))}
    </>
  );
}

function KeyLine({ keys, does }: { keys: string[]; does: string }) {
  return (
    <>
      <dt>
        {keys.map((key) => (
          <kbd key={key}>{key}</kbd>
        ))}
      </dt>
      <dd>{does}</dd>
    </>
  );
}
