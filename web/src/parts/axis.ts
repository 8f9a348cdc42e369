/** Round numbers on axes, and where columns stand of which some are not there. */

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

/** 1, 2 or 5 times a power of ten, not less than this, and at min 1. */
export function roundStep(min: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, min)));
  return (([1, 2, 5].find((digit) => digit * power >= min) ?? 10) || 1) * power;
}

/** Round times between two, at min `apart` nanoseconds from each other, with the unit of the larger one. */
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

/** The round times of a scale from 0; the last one is the first that is not below the highest. */
export function timeScale(highest: number, maxTicks: number): Tick[] {
  const step = roundStep(highest / maxTicks);
  return timeTicks(0, Math.max(1, Math.ceil(highest / step - 1e-9)) * step, step);
}

/** Where numbered columns stand: side by side, and apart where numbers between them are missing. */
export interface ColumnLayout {
  /** The left of each column, which is 1 wide. */
  lefts: number[];
  width: number;
  /** The left and the width of each gap. */
  gaps: [left: number, width: number][];
}

const GAP_SHARE = 0.02;

export function layOutColumns(numbers: number[]): ColumnLayout {
  const gap = Math.max(1, Math.round(numbers.length * GAP_SHARE));
  const layout: ColumnLayout = { lefts: [], width: 0, gaps: [] };
  numbers.forEach((number, at) => {
    if (at > 0 && number !== numbers[at - 1] + 1) {
      layout.gaps.push([layout.width, gap]);
      layout.width += gap;
    }
    layout.lefts.push(layout.width++);
  });
  return layout;
}

/** The column at a position, or the one beside the gap there. */
export function columnAt({ lefts }: ColumnLayout, position: number): number {
  const next = lefts.findIndex((left) => left > position);
  return next < 0 ? lefts.length - 1 : Math.max(0, next - 1);
}

/** Which columns are labelled by their number: the first of each stretch, and round ones, as far as there is room. */
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
