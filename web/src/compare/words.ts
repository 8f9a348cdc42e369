/** What is said of two runs: as `kinetoscope diff` says it. */
import { counted, formatBytes, formatDuration } from "../format";
import type { ComparisonRow, RunFacts } from "../page_data";

const MANY_TIMES = 9;
const LARGER: Record<string, string> = { slower: "larger", faster: "smaller" };

/** "+4.2 %", and "x12" for what is many times as much. */
export function formatChange(part: number | null): string {
  if (part === null) return "–";
  if (part >= MANY_TIMES) return `x${Math.round(1 + part).toLocaleString("en-US")}`;
  const percent = Math.abs(100 * part).toFixed(Math.abs(part) >= 1 ? 0 : 1);
  const sign = Number(percent) === 0 ? "" : part > 0 ? "+" : "−";
  return `${sign}${percent} %`;
}

export function formatAmount(row: ComparisonRow, value: number | null): string {
  return row.unit === "bytes" ? formatBytes(value) : formatDuration(value);
}

/** Memory gets larger, not slower. */
export function verdictOf(row: ComparisonRow): string {
  return row.unit === "bytes" ? (LARGER[row.verdict] ?? row.verdict) : row.verdict;
}

export function nameOf(row: ComparisonRow): string {
  const name = row.kind === "phase" ? row.name.replaceAll("_", " ") : row.name;
  const shapes = row.shapes ? ` ${row.shapes}` : "";
  return `${name}${shapes}${row.module ? ` in ${row.module}` : ""}`;
}

export function isWorse(row: ComparisonRow, threshold: number): boolean {
  return row.verdict === "slower" && row.change !== null && row.change > threshold;
}

export function aboutRun(run: RunFacts): string {
  return `${run.name ?? "run"}, ${counted(run.ranks.length || 1, "rank")}, ${counted(run.num_steps, "step")}`;
}
