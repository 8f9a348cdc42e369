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

/** The name with shapes and module; of a phase the label of the time breakdown. */
export function labelRow(row: ComparisonRow, partLabels: Record<string, string>): string {
  if (row.kind === "phase") return labelPhase(row.name, partLabels);
  const shapes = row.shapes ? ` ${row.shapes}` : "";
  return `${row.name}${shapes}${row.module ? ` in ${row.module}` : ""}`;
}

const ON_GPU = "device_";

function labelPhase(name: string, partLabels: Record<string, string>): string {
  const isOnGpu = name.startsWith(ON_GPU);
  const label = partLabels[`${isOnGpu ? name.slice(ON_GPU.length) : name}_ns`] ?? name.replaceAll("_", " ");
  return isOnGpu ? `GPU ${label}` : label;
}

/** Far beyond anything that was measured, an end of an interval is capped. */
const MAX_INTERVAL_END = 9;

export function formatInterval(interval: [number, number], large = "more than 10x"): string {
  return interval.map((end) => (end < MAX_INTERVAL_END ? formatChange(end) : large)).join(" to ");
}

export function describeRun(run: RunFacts): string {
  return `${run.title ?? "run"}, ${counted(run.ranks.length || 1, "rank")}, ${counted(run.num_steps, "step")}`;
}
