import type { Row, TimelineData } from "./data";
import type { View } from "./view";

const NARROWEST_WITH_GAP = 4;

/** The colour of a span: that of its name, or `grey` if it is not `shown`; null shows all. */
export interface SpanColours {
  names: Uint32Array;
  grey: number;
  shown: Uint8Array | null;
}

/**
 * Draw the spans of a row into one line of pixels, which is then stretched to the row's height. Of spans narrower
 * than a pixel one is drawn per pixel, and the others are skipped by binary search: the cost depends on the number
 * of pixels, not of spans. Spans of at least `minWidth` pixels are added to `wide`: the span, its left, its right,
 * and a slot for the caller.
 */
export function fillStrip(
  pixels: Uint32Array,
  data: TimelineData,
  row: Row,
  view: View,
  { names: colours, grey, shown }: SpanColours,
  wide: number[] | null = null,
  minWidth = Infinity,
): void {
  const { begins, durations } = data;
  const { names } = data.columns;
  const width = pixels.length;
  const perNs = width / (view.to - view.from);
  let span = data.firstEndingAfter(view.from, row.first, row.end);
  while (span < row.end && begins[span] < view.to) {
    const left = Math.max(0, Math.floor((begins[span] - view.from) * perNs));
    const right = Math.min(width, Math.round((begins[span] + durations[span] - view.from) * perNs));
    const colour = shown && !shown[span] ? grey : colours[names[span]];
    if (right - left > 1) {
      const gap = right - left >= NARROWEST_WITH_GAP && right < width ? 1 : 0;
      pixels.fill(colour, left, right - gap);
      if (right - left >= minWidth) wide?.push(span, left, right, 0);
      span++;
    } else {
      if (left < width) pixels[left] = colour;
      span = data.firstEndingAfter(view.from + (left + 1) / perNs, span + 1, row.end);
    }
  }
}

/** The span of a row that is drawn at a time, where a pixel is `slack` nanoseconds; null without one. */
export function spanAt(data: TimelineData, row: Row, time: number, slack: number): number | null {
  const span = data.firstEndingAfter(time, row.first, row.end);
  if (span < row.end && data.begins[span] <= time) return span;
  const near = [span - 1, span].filter((span) => span >= row.first && span < row.end);
  const distances = near.map((span) => Math.max(data.begins[span] - time, time - data.end(span)));
  const best = distances.indexOf(Math.min(...distances));
  return distances[best] <= slack ? near[best] : null;
}
