import { nthColour, PHASE_COLOURS, type ColourNumber } from "../colours";
import type { MemoryOverTime } from "../page_data";
import type { Numbers, Payload } from "../payload";

/** The memory of one device over time, decoded. `sizes` has bytes for each category, at each of `times`. */
export interface MemorySeries {
  categories: string[];
  colours: ColourNumber[];
  times: Numbers;
  sizes: Numbers[];
  peak: number;
}

export function readSeries(memory: MemoryOverTime, payload: Pick<Payload, "numbers">): MemorySeries {
  return {
    categories: memory.categories.map((category) => category.replace(/_/g, " ")),
    colours: memory.categories.map(colourOf),
    times: payload.numbers(memory.times),
    sizes: memory.sizes.map((column) => payload.numbers(column)),
    peak: memory.peak,
  };
}

/** A part of a step has its own colour on all of the page. */
function colourOf(category: string, at: number, categories: string[]): ColourNumber {
  const phases: Record<string, ColourNumber> = { ...PHASE_COLOURS, before_recording: 5 };
  return categories.every((category) => category in phases) ? phases[category] : nthColour(at);
}

/** Each category with those below it, as areas are drawn: the last one is the sum of all. */
export function stacked(sizes: Numbers[], length: number): Float64Array[] {
  let below = new Float64Array(length);
  return sizes.map((size) => {
    below = Float64Array.from(below, (bytes, at) => bytes + size[at]);
    return below;
  });
}

export function totalAt(series: MemorySeries, at: number): number {
  return series.sizes.reduce((sum, size) => sum + size[at], 0);
}

/** The last place whose time is not after a moment; -1 if all are. */
export function placeAt(times: Numbers, moment: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= moment) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export interface StepEnd {
  step: number;
  time: number;
  bytes: number;
}

/** What was alive at the end of each step in which memory was recorded. */
export function aliveAtEnds(
  series: MemorySeries,
  steps: { step: number; begin_ns: number; duration_ns: number }[],
): StepEnd[] {
  const last = series.times[series.times.length - 1];
  return steps
    .filter(({ begin_ns, duration_ns }) => begin_ns + duration_ns >= series.times[0] && begin_ns <= last)
    .map((row) => ({ step: row.step, time: row.begin_ns + row.duration_ns }))
    .map((end) => ({ ...end, bytes: totalAt(series, placeAt(series.times, end.time)) }))
    .sort((one, other) => one.time - other.time);
}

export interface Range {
  from: number;
  to: number;
}

export function wholeRange({ times }: MemorySeries): Range {
  return { from: times[0] ?? 0, to: Math.max((times[0] ?? 0) + 1, times[times.length - 1] ?? 1) };
}

export function zoomed({ from, to }: Range, around: number, factor: number, whole: Range): Range {
  return {
    from: Math.max(whole.from, around - (around - from) * factor),
    to: Math.min(whole.to, around + (to - around) * factor),
  };
}
