/** The step times of all runs of a folder, in the order of their starts. */
import { useState } from "preact/hooks";
import { cssColour, nthColour } from "../colours";
import { formatDuration } from "../format";
import { Columns } from "../parts/columns";
import { cutInMiddle, Name } from "../parts/name";
import { formatRunChange } from "./labels";
import type { ListedRun } from "./list_data";

const MAX_RUNS = 120;
const MIN_COLUMNS = 8;
const MAX_NAME_LENGTH = 16;

/** A column per run, with a colour for each group of several; a click opens the page of the run. */
export function StepTimesOfRuns({ runs }: { runs: ListedRun[] }) {
  const [shown, setShown] = useState<number | null>(null);
  const timed = runs
    .filter((run) => run.step_ns !== null)
    .sort((one, other) => Number(one.when_ms) - Number(other.when_ms))
    .slice(-MAX_RUNS);
  if (timed.length < 2) return null;
  const groups = [...new Set(timed.map(({ group }) => group))].filter(
    (group) => timed.filter((run) => run.group === group).length > 1,
  );
  const groupOf = ({ group }: ListedRun) => (groups.includes(group) ? group : null);
  const columns = timed.map((run, at) => ({
    title: run.title,
    number: at,
    name: cutInMiddle(run.title, MAX_NAME_LENGTH),
    timeNs: run.step_ns,
    parts: [...groups, null].map((group, of) => ({
      name: group === null ? "Other" : `Group ${of + 1}`,
      colour: group === null ? "var(--unknown)" : cssColour(nthColour(of)),
      value: group === groupOf(run) ? run.step_ns : 0,
    })),
  }));
  const pointed = timed[shown ?? -1] ?? timed[timed.length - 1];
  return (
    <section class="step-times" aria-labelledby="step-times-title">
      <h2 id="step-times-title">Step time by run</h2>
      <p aria-live="polite">
        <Name text={pointed.title} maxLength={80} />
        {`: ${formatDuration(pointed.step_ns)}${pointed.change === null ? "" : `, ${formatRunChange(pointed)} from ${pointed.before_title}`}`}
      </p>
      <Columns
        label="Step time of each run; Enter opens its page"
        noun="run"
        columns={columns}
        minColumns={MIN_COLUMNS}
        shown={shown}
        onShow={setShown}
        onChoose={(at) => (location.href = timed[at].address)}
      />
      {groups.length > 0 && (
        <p class="quiet">Each colour is a group of runs with the same command or name; other runs are grey.</p>
      )}
    </section>
  );
}
