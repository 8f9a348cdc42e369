import { firstWhere } from "./binary_search";
import type { Row, TimelineData } from "./data";
import type { Fold } from "./fold";
import type { View } from "./view";

/** Spans of one name in a time range, with their times within it. */
export interface RangeRow {
  name: string;
  count: number;
  totalNs: number;
  selfNs: number;
  /** The longest span. */
  longest: number;
}

/** For each span: is it counted; null counts all. */
type Shown = Uint8Array | null;

/** Spans in a time range on some rows, by name, the largest self time first. */
export function summarizeRange(
  data: TimelineData,
  rows: readonly number[],
  range: View,
  shown: Shown = null,
): RangeRow[] {
  const found = new Map<number, RangeRow>();
  for (const at of rows) addRow(data, at, range, shown, found);
  return [...found.values()].sort((one, other) => other.selfNs - one.selfNs);
}

/** The number of hidden spans that start in a range, on the tracks of some rows. */
export function leftOutIn(data: TimelineData, fold: Fold, rows: readonly number[], range: View): number {
  const { cellNs, tracks, cells, counts } = data.leftOut;
  const wanted = new Set(rows.map((row) => data.rows[row].track));
  const [first, last] = [range.from, range.to].map((folded) => Math.floor(fold.real(folded) / cellNs));
  let count = 0;
  for (let at = 0; at < tracks.length; at++) {
    if (cells[at] >= first && cells[at] <= last && wanted.has(tracks[at])) count += counts[at];
  }
  return count;
}

function addRow(data: TimelineData, at: number, range: View, shown: Shown, found: Map<number, RangeRow>): void {
  const row = data.rows[at];
  const above = data.rows[at - 1]?.track === row.track ? data.rows[at - 1] : null;
  let parent = above?.first ?? 0;
  for (const span of spansIn(data, row, range)) {
    const time = timeIn(data, span, range);
    if (!shown || shown[span]) addSpan(data, span, time, lineOf(data, span, found));
    if (!above) continue;
    parent = data.firstEndingAfter(data.begins[span], parent, above.end);
    const isInside = parent < above.end && data.begins[parent] <= data.begins[span];
    if (isInside && (!shown || shown[parent])) lineOf(data, parent, found).selfNs -= time;
  }
}

function addSpan(data: TimelineData, span: number, time: number, line: RangeRow): void {
  line.count++;
  line.totalNs += time;
  line.selfNs += time;
  if (data.durations[span] > data.durations[line.longest]) line.longest = span;
}

function lineOf(data: TimelineData, span: number, found: Map<number, RangeRow>): RangeRow {
  const name = data.columns.names[span];
  let line = found.get(name);
  if (!line) {
    line = { name: data.name(span), count: 0, totalNs: 0, selfNs: 0, longest: span };
    found.set(name, line);
  }
  return line;
}

function timeIn(data: TimelineData, span: number, range: View): number {
  return Math.max(0, Math.min(data.end(span), range.to) - Math.max(data.begins[span], range.from));
}

/** The spans of a row that overlap a range. */
export function* spansIn(data: TimelineData, row: Row, range: View): Generator<number> {
  const first = data.firstEndingAfter(range.from, row.first, row.end);
  const end = firstWhere(first, row.end, (span) => data.begins[span] >= range.to);
  for (let span = first; span < end; span++) yield span;
}

/** The longest spans in a range, at most `maxSpans`, by start; and their total number. */
export function longestIn(
  data: TimelineData,
  rows: readonly number[],
  range: View,
  maxSpans: number,
  shown: Shown = null,
): { spans: number[]; count: number } {
  const spans: number[] = [];
  let [minDuration, count] = [0, 0];
  const keepLongest = () => {
    spans.sort((one, other) => data.durations[other] - data.durations[one]);
    spans.length = Math.min(spans.length, maxSpans);
    minDuration = spans.length === maxSpans ? data.durations[spans[maxSpans - 1]] : 0;
  };
  for (const at of rows) {
    for (const span of spansIn(data, data.rows[at], range)) {
      if (shown && !shown[span]) continue;
      count++;
      if (spans.length >= maxSpans && data.durations[span] <= minDuration) continue;
      spans.push(span);
      if (spans.length >= 4 * maxSpans) keepLongest();
    }
  }
  keepLongest();
  return { spans: spans.sort((one, other) => data.begins[one] - data.begins[other]), count };
}
