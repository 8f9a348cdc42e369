import { counted } from "../format";
import { Empty } from "../parts/empty";
import { Name } from "../parts/name";
import { ThemeButton } from "../parts/theme_button";
import type { ListData, ListedRun } from "./list_data";
import { useRefreshed } from "./refresh";
import { RunPage } from "./run_page";
import { RunTable } from "./run_table";
import { StepTimesOfRuns } from "./step_times";

/** The list of runs in a folder, or one run; refreshed. */
export function RunsApp({ first }: { first: ListData }) {
  const { data, problem } = useRefreshed(first);
  return (
    <>
      <header class="runs-header">
        <div class="title-line">
          <h1>
            <Name text={data.title} maxLength={120} />
          </h1>
          <p class="quiet facts">{data.files ? null : <Name text={describeRuns(data.runs)} />}</p>
          <span class="title-buttons">
            <ThemeButton />
          </span>
        </div>
        {data.files && !data.files.is_only && (
          <nav aria-label="Runs">
            <a class="to-all-runs" href="/">
              All runs
            </a>
          </nav>
        )}
        {[problem, ...data.notes].filter(Boolean).map((note) => (
          <p class="page-note" key={note} role={note === problem ? "alert" : undefined}>
            {note}
          </p>
        ))}
      </header>
      <main>
        {data.files ? (
          <RunPage files={data.files} perfettoUrl={data.perfetto_url} />
        ) : data.runs.length ? (
          <>
            <RunTable runs={data.runs} />
            <StepTimesOfRuns runs={data.runs} />
          </>
        ) : (
          <NoRuns folder={data.folder} />
        )}
      </main>
    </>
  );
}

function describeRuns(runs: ListedRun[]): string {
  const numbers: [number, string][] = [
    [runs.filter((run) => run.state === "recording").length, "running"],
    [runs.filter((run) => run.state === "hanging").length, "hung"],
    [runs.filter((run) => run.state === "silent").length, "unresponsive"],
    [runs.filter((run) => run.state === "killed").length, "killed"],
    [runs.filter((run) => run.state === "failed").length, "failed"],
    [runs.filter((run) => run.is_queued).length, "being analysed"],
  ];
  const parts = numbers.filter(([number]) => number).map(([number, what]) => `${number} ${what}`);
  return [counted(runs.length, "run"), ...parts].join(" · ");
}

function NoRuns({ folder }: { folder: string }) {
  return (
    <Empty title="There are no runs here yet.">
      <Name text={folder} /> contains no traces, reports or running jobs. View the folder of your runs, by default{" "}
      <code>runs</code>, or record one: <code>with kinetoscope.profile() as profiler:</code>
    </Empty>
  );
}
