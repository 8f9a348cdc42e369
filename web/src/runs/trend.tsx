/** The step time over the runs of a group. */
import { cssColour } from "../colours";
import { counted, formatDuration } from "../format";
import { Name } from "../parts/name";
import { Sparkline } from "../parts/sparkline";
import { Bar } from "../parts/stack";
import type { ListedRun, RunFiles } from "./list_data";
import { Change, When } from "./run_cells";
import { formatStepTime } from "./labels";

const MAX_IN_LIST = 12;

/** The runs before a run and itself, the oldest first. */
export function runsUpTo(run: ListedRun, byKey: Map<string, ListedRun>): ListedRun[] {
  const found = [run];
  for (let before = byKey.get(run.before_key ?? ""); before && found.length < MAX_IN_LIST;) {
    found.unshift(before);
    before = byKey.get(before.before_key ?? "");
  }
  return found;
}

export function TrendLine({ run, byKey }: { run: ListedRun; byKey: Map<string, ListedRun> }) {
  const times = runsUpTo(run, byKey).flatMap(({ step_ns: time }) => (time === null ? [] : [time]));
  const title = `Step time of ${counted(times.length, "run")}: ${times.map(formatDuration).join(", ")}`;
  return <Sparkline values={times} title={title} />;
}

export function Trend({ files: { run, trend, max_step_ns } }: { files: RunFiles }) {
  return (
    <section class="trend" aria-labelledby="trend-title">
      <h2 id="trend-title">Step time over the runs of its group</h2>
      <table>
        <thead class="for-readers">
          <tr>
            <th scope="col">Run</th>
            <th scope="col">Began</th>
            <th scope="col">Step time as a bar</th>
            <th scope="col">Step time</th>
            <th scope="col">Change</th>
          </tr>
        </thead>
        <tbody>
          {trend.map((other) => {
            const isThis = other.key === run.key;
            return (
              <tr key={other.key} class={isThis ? "this-run" : undefined} aria-current={isThis ? "true" : undefined}>
                <td>
                  <a href={other.address}>
                    <Name text={other.title} maxLength={60} />
                  </a>
                </td>
                <td class="short">
                  <When unixMs={other.when_ms} what={other.has_start_time ? "began" : "last written"} />
                </td>
                <td class="trend-bar">
                  <Bar
                    parts={[{ name: "step", value: other.step_ns, colour: cssColour(isThis ? 1 : 8) }]}
                    longest={max_step_ns}
                  />
                </td>
                <td class="number">{formatStepTime(other)}</td>
                <td class="number">
                  <Change run={other} />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
