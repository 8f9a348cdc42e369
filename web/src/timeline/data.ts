import { titleOf } from "../modules/tree";
import type { Timeline, Track } from "../page_data";
import type { Payload } from "../payload";
import { firstWhere } from "./binary_search";
import type { Fold } from "./fold";

/** Spans of one row of a track: indices `first` to `end - 1`, by start. They do not overlap. */
export interface Row {
  track: number;
  depth: number;
  first: number;
  end: number;
}

export interface SpanColumns {
  begins: Float64Array;
  durations: Float64Array;
  names: Uint32Array;
  categories: ArrayLike<number>;
  details: ArrayLike<number>;
  stacks: ArrayLike<number>;
  launches: Uint32Array;
  /** The row of the module of each span plus 1, 0 for none; missing if no modules were recorded. */
  modules?: ArrayLike<number>;
}

export interface FlowColumns {
  sources: ArrayLike<number>;
  targets: ArrayLike<number>;
  names: ArrayLike<number>;
}

/** Stacks: the innermost line of each, and the index plus 1 of its caller's stack. */
export interface StackColumns {
  lines: ArrayLike<number>;
  callers: ArrayLike<number>;
}

/** Numbers of hidden spans by track and start, in recorded time, in the order of tracks and cells. */
export interface LeftOutColumns {
  cellNs: number;
  tracks: ArrayLike<number>;
  cells: ArrayLike<number>;
  counts: ArrayLike<number>;
}

const NONE_LEFT_OUT: LeftOutColumns = { cellNs: 1, tracks: [], cells: [], counts: [] };

/** The spans of all tracks, for fast lookup while drawing. A span is an index into the columns. */
export class TimelineData {
  readonly begins: Float64Array;
  readonly durations: Float64Array;
  readonly rows: Row[];
  /** The rows of each track, the outermost first. */
  readonly rowsOfTrack: number[][];

  constructor(
    readonly texts: string[],
    readonly tracks: Track[],
    readonly columns: SpanColumns,
    readonly flows: FlowColumns = { sources: [], targets: [], names: [] },
    readonly stacks: StackColumns = { lines: [], callers: [] },
    readonly details: Record<string, unknown>[] = [],
    readonly leftOut = NONE_LEFT_OUT,
    readonly moduleTitles: string[] = [],
  ) {
    this.begins = columns.begins;
    this.durations = columns.durations;
    this.rows = tracks.flatMap((track, at) => rowsOf(track, at));
    this.rowsOfTrack = tracks.map(() => []);
    this.rows.forEach((row, at) => this.rowsOfTrack[row.track].push(at));
  }

  get size(): number {
    return this.begins.length;
  }

  name(span: number): string {
    return this.texts[this.columns.names[span]] ?? "";
  }

  category(span: number): string {
    return this.texts[this.columns.categories[span]] ?? "";
  }

  /** The title of the module that a span belongs to; null if it is unknown. */
  moduleTitle(span: number): string | null {
    const module = this.columns.modules?.[span];
    return module ? this.moduleTitles[module - 1] : null;
  }

  end(span: number): number {
    return this.begins[span] + this.durations[span];
  }

  track(span: number): Track {
    return this.tracks[this.rows[this.rowOf(span)].track];
  }

  rowOf(span: number): number {
    return firstWhere(0, this.rows.length, (at) => this.rows[at].end > span);
  }

  /** The first span of a row from `first` on that ends after a time; else `end`. Fast if it is near. */
  firstEndingAfter(time: number, first: number, end: number): number {
    const { begins, durations } = this;
    if (first >= end || begins[first] + durations[first] > time) return first;
    let low = first;
    let jump = 1;
    while (low + jump < end && begins[low + jump] + durations[low + jump] <= time) {
      low += jump;
      jump *= 2;
    }
    let high = Math.min(end, low + jump);
    for (low += 1; low < high;) {
      const middle = (low + high) >>> 1;
      if (begins[middle] + durations[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The parent of a span. */
  parent(span: number): number | null {
    const at = this.rowOf(span);
    const above = this.rows[at - 1];
    if (!above || above.track !== this.rows[at].track) return null;
    const begin = this.begins[span];
    const next = firstWhere(above.first, above.end, (other) => this.begins[other] > begin);
    const found = next - 1;
    return found >= above.first && this.end(found) >= this.end(span) ? found : null;
  }

  /** The ancestors of a span, the innermost first. */
  ancestors(span: number): number[] {
    const found: number[] = [];
    for (let outer = this.parent(span); outer !== null; outer = this.parent(outer)) found.push(outer);
    return found;
  }

  /** The children of a span: from the first number to before the second. */
  children(span: number): [number, number] {
    const at = this.rowOf(span);
    const below = this.rows[at + 1];
    if (!below || below.track !== this.rows[at].track) return [0, 0];
    const [begin, end] = [this.begins[span], this.end(span)];
    const first = firstWhere(below.first, below.end, (other) => this.begins[other] >= begin);
    return [first, firstWhere(first, below.end, (other) => this.begins[other] >= end)];
  }

  /** The neighbour of a span: before or after it in its row, its parent, or its first child. */
  neighbour(span: number, where: "before" | "after" | "around" | "inside"): number | null {
    const row = this.rows[this.rowOf(span)];
    if (where === "before") return span > row.first ? span - 1 : null;
    if (where === "after") return span + 1 < row.end ? span + 1 : null;
    if (where === "around") return this.parent(span);
    const [first, end] = this.children(span);
    return first < end ? first : null;
  }

  /** The self time of a span. */
  selfTime(span: number): number {
    const [first, end] = this.children(span);
    let time = this.durations[span];
    for (let child = first; child < end; child++) time -= this.durations[child];
    return Math.max(0, time);
  }

  /** The arguments of a span; null if they were not kept. */
  argsOf(span: number): Record<string, unknown> | null {
    const index = this.columns.details[span];
    return index ? this.details[index - 1] : null;
  }

  /** The lines of a span's stack, the innermost first; empty if it was not kept. */
  toStackParts(span: number): string[] {
    const lines: string[] = [];
    for (let at = this.columns.stacks[span]; at; at = this.stacks.callers[at - 1]) {
      lines.push(this.texts[this.stacks.lines[at - 1]]);
    }
    return lines;
  }

  /** The start of the first span and the end of the last. */
  extent(): [number, number] {
    const filled = this.rows.filter((row) => row.end > row.first);
    if (!filled.length) return [0, 0];
    return [
      filled.reduce((least, row) => Math.min(least, this.begins[row.first]), Infinity),
      filled.reduce((latest, row) => Math.max(latest, this.end(row.end - 1)), -Infinity),
    ];
  }
}

function rowsOf(track: Track, at: number): Row[] {
  const { row_begins } = track;
  return row_begins.slice(1).map((end, depth) => ({ track: at, depth, first: row_begins[depth], end }));
}

/** The spans in folded time. */
export function readTimeline(payload: Payload, timeline: Timeline, fold: Fold): TimelineData {
  const { spans, flows, stacks, left_out: leftOut } = timeline;
  const { modules } = payload.page;
  const begins = new Float64Array(payload.numbers(spans.begins));
  const columns: SpanColumns = {
    begins: fold.gaps.length ? begins.map((begin) => fold.folded(begin)) : begins,
    durations: new Float64Array(payload.numbers(spans.durations)),
    names: new Uint32Array(payload.numbers(spans.names)),
    categories: payload.numbers(spans.categories),
    details: payload.numbers(spans.details),
    stacks: payload.numbers(spans.stacks),
    launches: new Uint32Array(payload.numbers(spans.launches)),
    modules: spans.modules && payload.numbers(spans.modules),
  };
  const arrows = {
    sources: payload.numbers(flows.sources),
    targets: payload.numbers(flows.targets),
    names: payload.numbers(flows.names),
  };
  const calls = { lines: payload.numbers(stacks.lines), callers: payload.numbers(stacks.callers) };
  const lacking = leftOut && {
    cellNs: leftOut.cell_ns,
    tracks: payload.numbers(leftOut.tracks),
    cells: payload.numbers(leftOut.cells),
    counts: payload.numbers(leftOut.counts),
  };
  return new TimelineData(
    ...([timeline.texts, timeline.tracks, columns, arrows, calls] as const),
    timeline.details,
    lacking ?? NONE_LEFT_OUT,
    modules?.rows.map((_, at) => titleOf(modules.rows, at)),
  );
}
