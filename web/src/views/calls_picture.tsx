import { formatCount, formatDuration } from "../format";
import type { CallSums } from "../page_data";
import { Scatter, type Series } from "../parts/scatter";

interface CallsPictureProps {
  rows: CallSums[];
  /** Title of the number of calls. */
  calls: string;
}

/** The number and the mean time of calls by name: on the right many calls, above long ones. */
export function CallsPicture({ rows, calls }: CallsPictureProps) {
  const series = seriesOf(rows);
  if (!series.length) return null;
  return (
    <section class="calls-picture" aria-labelledby="calls-picture-title">
      <h3 id="calls-picture-title">{`${calls} and mean time of each name`}</h3>
      <Scatter
        label={`Mean time of each name against its number of ${calls.toLowerCase()}`}
        series={series}
        x={{ title: calls, base: 10, format: formatCount }}
        y={{ title: "Mean", base: 10, format: formatDuration }}
      />
    </section>
  );
}

/** Points by kind of kernel; operators have none. */
function seriesOf(rows: CallSums[]): Series[] {
  const found = new Map<string, [number, number][]>();
  for (const { kind, num_calls, mean_ns } of rows) {
    if (mean_ns <= 0) continue;
    const name = kind ?? "operators";
    const points = found.get(name);
    if (points) points.push([num_calls, mean_ns]);
    else found.set(name, [[num_calls, mean_ns]]);
  }
  return [...found].map(([name, points]) => ({ name, points }));
}
