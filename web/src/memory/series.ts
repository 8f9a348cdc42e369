import { nthColour, PHASE_COLOURS, type ColourNumber } from "../colours";
import type { MemoryOverTime, StepEnd } from "../page_data";
import type { Numbers, Payload } from "../payload";
import { Fold } from "../timeline/fold";

/** Decoded memory of one device over folded time. `sizes` has bytes per category at each of `times`. */
export interface MemorySeries {
  categories: string[];
  colours: ColourNumber[];
  times: Numbers;
  sizes: Numbers[];
  totals: Numbers;
  peak: number;
  peakBytes: number;
  stepEnds: StepEnd[];
  /** Gaps between windows, without data, are folded as in the timeline. */
  fold: Fold;
}

export function readSeries(memory: MemoryOverTime, payload: Pick<Payload, "numbers" | "page">): MemorySeries {
  const fold = new Fold((payload.page.timeline?.windows ?? []) as [number, number][]);
  return {
    categories: memory.categories.map((category) => category.replace(/_/g, " ")),
    colours: memory.categories.map(colourOf),
    times: Float64Array.from(payload.numbers(memory.times), (time) => fold.folded(time)),
    sizes: memory.sizes.map((column) => payload.numbers(column)),
    totals: payload.numbers(memory.totals),
    peak: memory.peak,
    peakBytes: memory.peak_bytes,
    stepEnds: memory.step_ends,
    fold,
  };
}

/** Phases have the same colours on the whole page. */
function colourOf(category: string, at: number, categories: string[]): ColourNumber {
  const phases: Record<string, ColourNumber> = { ...PHASE_COLOURS, before_recording: 5 };
  return categories.every((category) => category in phases) ? phases[category] : nthColour(at);
}

/** Cumulative sums of the categories, as areas are drawn; the last one is the total. */
export function stacked(sizes: Numbers[], length: number): Float64Array[] {
  let below = new Float64Array(length);
  return sizes.map((size) => {
    below = Float64Array.from(below, (bytes, at) => bytes + size[at]);
    return below;
  });
}

/** The last index whose time is not after a moment; -1 without one. */
export function indexAt(times: Numbers, moment: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= moment) low = middle + 1;
    else high = middle;
  }
  return low - 1;
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
