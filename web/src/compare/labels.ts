/** Labels of a comparison, as in `kinetoscope diff`. */
import { counted, formatBytes, formatChange, formatDuration } from "../format";
import type { ComparisonRow, RunFacts } from "../page_data";

const LARGER: Record<string, string> = { slower: "larger", faster: "smaller" };
const LABELS: Record<string, string> = {
  same: "no significant change",
  unsure: "inconclusive",
  new: "added",
  gone: "removed",
};

export function formatAmount(row: ComparisonRow, value: number | null): string {
  return row.unit === "bytes" ? formatBytes(value) : formatDuration(value);
}

export function labelOf(verdict: string): string {
  return LABELS[verdict] ?? verdict;
}

/** Memory is larger or smaller, time slower or faster. */
export function labelVerdict(row: ComparisonRow): string {
  return (row.unit === "bytes" && LARGER[row.verdict]) || labelOf(row.verdict);
}

export function labelRow(row: ComparisonRow): string {
  const name = row.kind === "phase" ? row.name.replaceAll("_", " ") : row.name;
  const shapes = row.shapes ? ` ${row.shapes}` : "";
  return `${name}${shapes}${row.module ? ` in ${row.module}` : ""}`;
}

/** Far beyond anything that was measured, an end of an interval is capped. */
const MAX_INTERVAL_END = 9;

export function formatInterval(interval: [number, number]): string {
  return interval.map((end) => (end < MAX_INTERVAL_END ? formatChange(end) : "more than 10x")).join(" to ");
}

export function describeRun(run: RunFacts): string {
  return `${run.title ?? "run"}, ${counted(run.ranks.length || 1, "rank")}, ${counted(run.num_steps, "step")}`;
}
