import type { StepRow } from "../page_data";
import { firstWhere } from "./binary_search";
import type { View } from "./view";

const UNITS: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** A time, to three digits below the length of the visible range. */
export function formatMoment(time: number, view: View): string {
  const [size, unit] = UNITS.find(([size]) => Math.max(Math.abs(view.from), Math.abs(view.to)) >= size) ?? UNITS[3];
  const decimals = Math.max(0, Math.min(9, Math.ceil(Math.log10((size / (view.to - view.from)) * 1000))));
  return `${(time / size).toFixed(decimals)} ${unit}`;
}

/** The steps of one rank, by start: of the requested rank, or of the first one with steps. */
export function stepsOf(steps: StepRow[], rank: number | null): StepRow[] {
  const found = steps.some((step) => step.rank === rank) ? rank : steps[0]?.rank;
  return steps.filter((step) => step.rank === found).sort((one, other) => one.begin_ns - other.begin_ns);
}

/** The steps in a time range as text. */
export function formatSteps(steps: StepRow[], { from, to }: View): string {
  if (!steps.length) return "No steps";
  const first = firstWhere(0, steps.length, (at) => steps[at].begin_ns + steps[at].duration_ns > from);
  const end = firstWhere(
    first,
    steps.length,
    (at) => steps[at].begin_ns > to || (steps[at].begin_ns === to && from < to),
  );
  if (end - first > 1) return `Steps ${steps[first].step} to ${steps[end - 1].step}`;
  if (end > first) return `Step ${steps[first].step}`;
  if (first === 0) return `Before step ${steps[0].step}`;
  if (first === steps.length) return `After step ${steps[first - 1].step}`;
  return `After step ${steps[first - 1].step}, before ${steps[first].step}`;
}
