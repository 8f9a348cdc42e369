import type { FlameGraph } from "../page_data";

/** A box of the picture: a frame, its depth below the frame that fills the width, and its position in pixels. */
export interface Box {
  frame: number;
  level: number;
  x: number;
  width: number;
}

export const ORDERS = ["Left-heavy", "In order of time"] as const;
export type Order = (typeof ORDERS)[number];

/** Columns of frames, from the page's data or computed. `root_self_ns` is the self time of the root. */
export type FrameColumns<Column> = Pick<FlameGraph, "title" | "texts" | "total_ns"> & {
  names: Column;
  callers: Column;
  self_ns: Column;
  total: Column;
  num_calls: Column;
  firsts: Column;
  root_self_ns?: number;
};

/** The frames of a flame graph below an added `root`. Times are nanoseconds. */
export class Frames<Column extends { length: number } = { length: number }> {
  readonly root: number;
  readonly texts: string[];
  readonly names: Uint32Array;
  readonly callers: Int32Array;
  readonly self_ns: Float64Array;
  readonly total: Float64Array;
  readonly calls: Float64Array;
  readonly #begins: Uint32Array;
  readonly #callees: Uint32Array;

  constructor(
    graph: FrameColumns<Column>,
    payload: { numbers: (column: Column) => ArrayLike<number> },
    order: Order = "Left-heavy",
  ) {
    const size = graph.names.length;
    this.root = size;
    this.texts = [...graph.texts, graph.title];
    this.names = new Uint32Array(size + 1);
    this.names.set(payload.numbers(graph.names));
    this.names[size] = graph.texts.length;
    this.self_ns = withRoot(payload.numbers(graph.self_ns));
    this.total = withRoot(payload.numbers(graph.total));
    this.calls = withRoot(payload.numbers(graph.num_calls));
    this.callers = Int32Array.from(withRoot(payload.numbers(graph.callers)), (caller) => (caller ? caller - 1 : size));
    this.callers[size] = -1;
    const firsts = order === "Left-heavy" ? null : payload.numbers(graph.firsts);
    [this.#begins, this.#callees] = calleesOf(this.callers, (one, other) =>
      firsts ? firsts[one] - firsts[other] : this.total[other] - this.total[one],
    );
    this.total[size] = graph.total_ns;
    this.self_ns[size] = graph.root_self_ns ?? 0;
  }

  nameOf(frame: number): string {
    return this.texts[this.names[frame]];
  }

  /** The callees of a frame, in the chosen order. */
  calleesOf(frame: number): Uint32Array {
    return this.#callees.subarray(this.#begins[frame], this.#begins[frame + 1]);
  }

  /** The frames from the root to a frame, both included. */
  pathTo(frame: number): number[] {
    const path = [frame];
    while (this.callers[path[0]] >= 0) path.unshift(this.callers[path[0]]);
    return path;
  }

  /** The frames whose names contain all words of a search. */
  matching(search: string): Uint8Array {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const isFound = this.texts.map((text) => {
      const lower = text.toLowerCase();
      return words.length > 0 && words.every((word) => lower.includes(word));
    });
    return Uint8Array.from(this.names, (name, frame) => Number(frame !== this.root && isFound[name]));
  }

  /** The number of matching frames at or below a frame, and their time without nested duplicates. */
  foundBelow(top: number, isFound: Uint8Array): { count: number; totalNs: number } {
    const found = { count: 0, totalNs: 0 };
    const open = [{ frame: top, isWithin: false }];
    for (let next = open.pop(); next; next = open.pop()) {
      const { frame, isWithin } = next;
      if (isFound[frame]) found.count++;
      if (isFound[frame] && !isWithin) found.totalNs += this.total[frame];
      for (const callee of this.calleesOf(frame)) open.push({ frame: callee, isWithin: isWithin || !!isFound[frame] });
    }
    return found;
  }

  /** The boxes of a frame, which fills the width, and of all frames below it of at least a pixel. */
  boxes(top: number, width: number, mostLevels: number): Box[] {
    const boxes: Box[] = [{ frame: top, level: 0, x: 0, width }];
    const pixelsPerNs = width / (this.total[top] || 1);
    for (let at = 0; at < boxes.length; at++) {
      const { frame, level } = boxes[at];
      if (level + 1 >= mostLevels) break;
      let x = boxes[at].x;
      for (const callee of this.calleesOf(frame)) {
        const width = this.total[callee] * pixelsPerNs;
        if (width >= 1) boxes.push({ frame: callee, level: level + 1, x, width });
        x += width;
      }
    }
    return boxes;
  }

  /** The times by name at or below a frame. Recursive calls count once in `total`, by their outermost call. */
  byName(top: number): NameRow[] {
    const rows = new Map<number, NameRow>();
    const numOpen = new Uint32Array(this.texts.length);
    const open = [top];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      if (next < 0) {
        numOpen[this.names[-next - 1]]--;
        continue;
      }
      const name = this.names[next];
      const row = rows.get(name) ?? { name: this.texts[name], self_ns: 0, total_ns: 0, num_calls: 0 };
      row.self_ns += this.self_ns[next];
      row.num_calls += this.calls[next];
      if (!numOpen[name]) row.total_ns += this.total[next];
      if (next !== this.root) rows.set(name, row);
      numOpen[name]++;
      open.push(-next - 1);
      for (const callee of this.calleesOf(next)) open.push(callee);
    }
    return [...rows.values()];
  }
}

export interface NameRow {
  name: string;
  self_ns: number;
  total_ns: number;
  num_calls: number;
}

function withRoot(numbers: ArrayLike<number>): Float64Array {
  const longer = new Float64Array(numbers.length + 1);
  longer.set(numbers);
  return longer;
}

/** The callees of all frames in one list, and where those of each frame start. */
function calleesOf(callers: Int32Array, compare: (one: number, other: number) => number): [Uint32Array, Uint32Array] {
  const begins = new Uint32Array(callers.length + 1);
  for (const caller of callers) if (caller >= 0) begins[caller + 1]++;
  for (let at = 1; at < begins.length; at++) begins[at] += begins[at - 1];
  const next = begins.slice();
  const callees = new Uint32Array(callers.length - 1);
  const inOrder = Uint32Array.from(callers.keys()).subarray(0, callers.length - 1);
  for (const frame of inOrder.sort((one, other) => compare(one, other) || one - other))
    if (callers[frame] >= 0) callees[next[callers[frame]]++] = frame;
  return [begins, callees];
}

export const KINDS = [
  "your code",
  "library Python",
  "modules",
  "operators",
  "backward",
  "CUDA calls",
  "markers, other",
] as const;
export type Kind = (typeof KINDS)[number];

const PYTHON = /^(.*?)([^/\\]*)\((\d+)\): (.*)$/;
/** A test with a length limit: `PYTHON` is slow for names of many thousand characters. */
const IS_PYTHON = /\(\d+\): /;
const LIBRARY =
  /^(torch|site-packages)\/|\/(site-packages|dist-packages|lib\/python[\d.]+)\/|^<|^(importlib|runpy|threading|contextlib|functools)/;

/** The kind of a frame, from its name. */
export function kindOf(name: string): Kind {
  if (name.startsWith("nn.Module: ")) return "modules";
  if (IS_PYTHON.test(name)) return LIBRARY.test(name) ? "library Python" : "your code";
  if (name.startsWith("<built-in")) return "library Python";
  if (/Backward\d*\b|^autograd::/.test(name)) return "backward";
  if (/^(cuda|cu|hip)[A-Z]/.test(name)) return "CUDA calls";
  return name.includes("::") ? "operators" : "markers, other";
}

/** A short name for a small box; for a line of Python, the function comes first. */
export function shortName(name: string): string {
  const python = name.length < 1000 ? PYTHON.exec(name) : null;
  return python ? `${python[4]} (${python[2]}:${python[3]})` : name;
}
