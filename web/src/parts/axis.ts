/** Ticks of axes, and the layout of numbered columns with gaps. */

const UNITS: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

export interface Tick {
  value: number;
  label: string;
}

/** The smallest of 1, 2 or 5 times a power of ten that is at least `min` and 1. */
export function roundStep(min: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, min)));
  return (([1, 2, 5].find((digit) => digit * power >= min) ?? 10) || 1) * power;
}

/** Round times in a range, at least `apart` nanoseconds from each other, with the unit of the larger end. */
export function timeTicks(from: number, to: number, apart: number): Tick[] {
  const step = roundStep(apart);
  const [size, unit] = UNITS.find(([size]) => Math.max(Math.abs(from), Math.abs(to)) >= size) ?? UNITS[3];
  const decimals = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
  const ticks: Tick[] = [];
  for (let at = Math.ceil(from / step); at * step <= to; at++) {
    ticks.push({ value: at * step, label: `${((at * step) / size).toFixed(decimals)} ${unit}` });
  }
  return ticks;
}

/** The ticks of a scale from 0; the last one is not below the highest value. */
export function timeScale(highest: number, maxTicks: number): Tick[] {
  const step = roundStep(highest / maxTicks);
  return timeTicks(0, Math.max(1, Math.ceil(highest / step - 1e-9)) * step, step);
}

/** Layout of numbered columns: adjacent numbers side by side, with gaps where numbers are missing. */
export interface ColumnLayout {
  /** The left edge of each column of width 1. */
  lefts: number[];
  width: number;
  /** The left edge and width of each gap. */
  gaps: [left: number, width: number][];
}

const GAP_SHARE = 0.02;

export function layOutColumns(numbers: number[], minWidth = 0): ColumnLayout {
  const gap = Math.max(1, Math.round(numbers.length * GAP_SHARE));
  const layout: ColumnLayout = { lefts: [], width: 0, gaps: [] };
  numbers.forEach((number, at) => {
    if (at > 0 && number !== numbers[at - 1] + 1) {
      layout.gaps.push([layout.width, gap]);
      layout.width += gap;
    }
    layout.lefts.push(layout.width++);
  });
  layout.width = Math.max(layout.width, minWidth);
  return layout;
}

/** The column at a position, or the one before the gap there. */
export function columnAt({ lefts }: ColumnLayout, position: number): number {
  const next = lefts.findIndex((left) => left > position);
  return next < 0 ? lefts.length - 1 : Math.max(0, next - 1);
}

/** The columns that get a label: the first of each run of numbers, and round numbers, where they fit. */
export function labelledColumns(numbers: number[], { lefts, width }: ColumnLayout, maxLabels: number): number[] {
  const every = roundStep(numbers.length / maxLabels);
  const apart = width / (maxLabels * 1.6);
  const isFirst = (at: number) => at === 0 || numbers[at] !== numbers[at - 1] + 1;
  const wanted = [...numbers.keys()].filter((at) => isFirst(at) || numbers[at] % every === 0);
  const labelled: number[] = [];
  for (const at of [...wanted.filter(isFirst), ...wanted.filter((at) => !isFirst(at))]) {
    if (labelled.every((other) => Math.abs(lefts[other] - lefts[at]) >= apart)) labelled.push(at);
  }
  return labelled.sort((one, other) => one - other);
}
