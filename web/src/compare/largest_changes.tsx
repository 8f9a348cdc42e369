/** The operators, kernels and memory that changed most, those that got worse first. */
import { formatChange } from "../format";
import type { ComparisonRow } from "../page_data";
import { Name } from "../parts/name";
import { formatAmount, labelRow, labelVerdict } from "./labels";

const MAX_ROWS = 6;
const OF_A_STEP = ["step", "phase"];
const UNCHANGED = ["same", "unsure"];

interface LargestChangesProps {
  rows: ComparisonRow[];
  labels: Record<string, string>;
}

export function LargestChanges({ rows, labels }: LargestChangesProps) {
  const changed = rows.filter((row) => !OF_A_STEP.includes(row.kind) && !UNCHANGED.includes(row.verdict));
  if (!changed.length) return null;
  return (
    <section class="largest-changes" aria-labelledby="largest-changes-title">
      <h2 id="largest-changes-title">Largest changes</h2>
      <ul>
        {changed.slice(0, MAX_ROWS).map((row) => (
          <li key={`${row.kind} ${labelRow(row, labels)}`}>
            <span class="quiet">{row.kind}</span> <Name text={labelRow(row, labels)} maxLength={80} />{" "}
            {row.before !== null && row.after !== null ? (
              <>
                {`${formatAmount(row, row.before)} → ${formatAmount(row, row.after)} `}
                <strong class={`verdict ${row.verdict}`}>{formatChange(row.change)}</strong>
              </>
            ) : (
              <>
                {formatAmount(row, row.before ?? row.after)} <strong>{labelVerdict(row)}</strong>
              </>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
