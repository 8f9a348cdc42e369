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

/** 1, 2 or 5 times a power of ten, not less than this, and at least 1. */
export function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return (([1, 2, 5].find((digit) => digit * power >= least) ?? 10) || 1) * power;
}

/** Round times between two, at least `apart` nanoseconds from each other, with the unit of the larger one. */
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
export function timeScale(highest: number, mostTicks: number): Tick[] {
  const step = roundStep(highest / mostTicks);
  return timeTicks(0, Math.max(1, Math.ceil(highest / step - 1e-9)) * step, step);
}

/** Where numbered columns stand: side by side, and apart where numbers between them are missing. */
export interface Places {
  /** The left of each column, which is 1 wide. */
  lefts: number[];
  width: number;
  /** The left and the width of each gap. */
  gaps: [left: number, width: number][];
}

const GAP_SHARE = 0.02;

export function placesOf(numbers: number[]): Places {
  const gap = Math.max(1, Math.round(numbers.length * GAP_SHARE));
  const places: Places = { lefts: [], width: 0, gaps: [] };
  numbers.forEach((number, at) => {
    if (at > 0 && number !== numbers[at - 1] + 1) {
      places.gaps.push([places.width, gap]);
      places.width += gap;
    }
    places.lefts.push(places.width++);
  });
  return places;
}

/** The column at a place, or the one beside the gap there. */
export function columnAt({ lefts }: Places, place: number): number {
  const next = lefts.findIndex((left) => left > place);
  return next < 0 ? lefts.length - 1 : Math.max(0, next - 1);
}

/** Which columns are told by their number: the first of each stretch, and round ones, as far as there is room. */
export function toldColumns(numbers: number[], { lefts, width }: Places, mostTold: number): number[] {
  const every = roundStep(numbers.length / mostTold);
  const apart = width / (mostTold * 1.6);
  const isFirst = (at: number) => at === 0 || numbers[at] !== numbers[at - 1] + 1;
  const wanted = [...numbers.keys()].filter((at) => isFirst(at) || numbers[at] % every === 0);
  const told: number[] = [];
  for (const at of [...wanted.filter(isFirst), ...wanted.filter((at) => !isFirst(at))]) {
    if (told.every((other) => Math.abs(lefts[other] - lefts[at]) >= apart)) told.push(at);
  }
  return told.sort((one, other) => one - other);
}
