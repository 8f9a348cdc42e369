/** What is said of two runs: as `kinetoscope diff` says it. */
import { counted, formatBytes, formatDuration } from "../format";
import type { Comparison, ComparisonRow, RunFacts } from "../page_data";

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

/** What became of the step. */
export function stepSentence(comparison: Comparison): string {
  const step = comparison.rows.find((row) => row.kind === "step" && row.name === "step");
  if (!step) return "One of the runs has no steps, so their steps cannot be compared.";
  const said: Record<string, string> = {
    slower: "The step got slower",
    faster: "The step got faster",
    same: `The step is the same, within ${percentOf(comparison.threshold)}`,
  };
  const amounts = `${formatAmount(step, step.before)} before, ${formatAmount(step, step.after)} after`;
  const between = step.interval
    ? `, ${formatChange(step.change)} (between ${step.interval.map(formatChange).join(" and ")})`
    : "";
  const start = said[step.verdict] ?? "Cannot tell whether the step changed";
  return `${start}: ${amounts}${between}.`;
}

/** What else the reader should know before the rows. */
export function otherSentences(comparison: Comparison): string[] {
  const worse = comparison.rows.filter((row) => isWorse(row, comparison.threshold)).length;
  const what = worse ? `${worse} of ${counted(comparison.rows.length, "row")}` : "Nothing";
  const isUnsure = comparison.rows.some(
    (row) => row.kind === "step" && row.name === "step" && row.verdict === "unsure",
  );
  return [
    ...(isUnsure ? [howToTell(comparison.more_steps)] : []),
    `${what} got slower or larger by more than ${percentOf(comparison.threshold)}.`,
    ...comparison.notes,
  ];
}

export function aboutRun(run: RunFacts): string {
  return `${run.name ?? "run"}, ${counted(run.ranks.length || 1, "rank")}, ${counted(run.num_steps, "step")}`;
}

function howToTell(moreSteps: number | null): string {
  if (moreSteps !== null) return `About ${counted(moreSteps, "more step")} of each run would tell.`;
  return (
    "More steps would not tell: what did not change differs as much between these recordings. Record both again, one " +
    "right after the other, on a machine that does nothing else."
  );
}

function percentOf(part: number): string {
  return `${Number((100 * part).toPrecision(3))} %`;
}
