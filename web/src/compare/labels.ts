/** Labels of a comparison, as in `kinetoscope diff`. */
import { counted, formatBytes, formatDuration } from "../format";
import type { ComparisonRow, RunFacts } from "../page_data";

const LARGER: Record<string, string> = { slower: "larger", faster: "smaller" };

export function formatAmount(row: ComparisonRow, value: number | null): string {
  return row.unit === "bytes" ? formatBytes(value) : formatDuration(value);
}

/** Memory is larger or smaller, time slower or faster. */
export function labelVerdict(row: ComparisonRow): string {
  return row.unit === "bytes" ? (LARGER[row.verdict] ?? row.verdict) : row.verdict;
}

export function labelRow(row: ComparisonRow): string {
  const name = row.kind === "phase" ? row.name.replaceAll("_", " ") : row.name;
  const shapes = row.shapes ? ` ${row.shapes}` : "";
  return `${name}${shapes}${row.module ? ` in ${row.module}` : ""}`;
}

export function describeRun(run: RunFacts): string {
  return `${run.title ?? "run"}, ${counted(run.ranks.length || 1, "rank")}, ${counted(run.num_steps, "step")}`;
}
