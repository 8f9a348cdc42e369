import type { StepRow } from "../page_data";
import type { View } from "./view";

const UNITS: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

export interface Tick {
  time: number;
  label: string;
}

/** Round times to write on the axis, at least `apart` nanoseconds from each other. */
export function ticksOf(view: View, apart: number): Tick[] {
  const step = roundStep(apart);
  const [size, unit] = UNITS.find(([size]) => Math.max(Math.abs(view.from), Math.abs(view.to)) >= size) ?? UNITS[3];
  const decimals = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
  const ticks: Tick[] = [];
  for (let at = Math.ceil(view.from / step); at * step <= view.to; at++) {
    ticks.push({ time: at * step, label: `${((at * step) / size).toFixed(decimals)} ${unit}` });
  }
  return ticks;
}

/** 1, 2 or 5 times a power of ten, not less than this, and at least a nanosecond. */
function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return (([1, 2, 5].find((digit) => digit * power >= least) ?? 10) || 1) * power;
}

/** The time of a moment, to three digits below the length of the view. */
export function formatMoment(time: number, view: View): string {
  const [size, unit] = UNITS.find(([size]) => Math.max(Math.abs(view.from), Math.abs(view.to)) >= size) ?? UNITS[3];
  const decimals = Math.max(0, Math.min(9, Math.ceil(Math.log10((size / (view.to - view.from)) * 1000))));
  return `${(time / size).toFixed(decimals)} ${unit}`;
}

/** The steps of one rank, by begin: of the one that was asked for, or of the first that has any. */
export function stepsOf(steps: StepRow[], rank: number | null): StepRow[] {
  const found = steps.some((step) => step.rank === rank) ? rank : steps[0]?.rank;
  return steps.filter((step) => step.rank === found).sort((one, other) => one.begin_ns - other.begin_ns);
}
