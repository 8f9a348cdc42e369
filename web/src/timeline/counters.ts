import { formatBytes, formatCount, formatDuration } from "../format";
import type { Timeline } from "../page_data";
import type { Payload } from "../payload";
import { firstWhere } from "./binary_search";
import type { Fold } from "./fold";

/** Values over time, ready to draw. */
export interface CounterData {
  rank: number | null;
  name: string;
  unit: string;
  times: ArrayLike<number>;
  values: Float64Array;
  min: number;
  max: number;
}

/** The counters in folded time. */
export function readCounters(payload: Payload, timeline: Timeline, fold: Fold): CounterData[] {
  return timeline.counters.map((counter) => {
    const values = Float64Array.from(payload.numbers(counter.values), (value) => value * counter.scale);
    const max = values.reduce((max, value) => Math.max(max, value), 0);
    const min = values.reduce((min, value) => Math.min(min, value), 0);
    const { rank, name, unit } = counter;
    return {
      rank,
      name,
      unit,
      times: Float64Array.from(payload.numbers(counter.times), (time) => fold.folded(time)),
      values,
      min,
      max,
    };
  });
}

/** The value of a counter at a time; null before its first. */
export function valueAt({ times, values }: CounterData, time: number): number | null {
  const next = firstWhere(0, times.length, (at) => times[at] > time);
  return next > 0 ? values[next - 1] : null;
}

const SIZES: Record<string, number> = { B: 1, bytes: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

export function formatValue(value: number | null, unit: string): string {
  const bytes = SIZES[unit];
  if (bytes) return formatBytes(value === null ? null : value * bytes);
  if (unit === "ns") return formatDuration(value);
  return unit ? `${formatCount(value)} ${unit}` : formatCount(value);
}

/** The largest value per pixel; NaN before the first. */
export function linePoints(counter: CounterData, width: number, from: number, to: number): Float64Array {
  const { times, values } = counter;
  const points = new Float64Array(width);
  const perPixel = (to - from) / width;
  let at = firstWhere(0, times.length, (at) => times[at] > from);
  let last = at > 0 ? values[at - 1] : NaN;
  for (let pixel = 0; pixel < width; pixel++) {
    const end = from + (pixel + 1) * perPixel;
    let max = last;
    for (; at < times.length && times[at] <= end; at++) {
      last = values[at];
      if (!(max >= last)) max = last;
    }
    points[pixel] = max;
  }
  return points;
}
