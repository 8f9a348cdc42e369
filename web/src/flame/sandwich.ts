/** All calls of one function: its callers and its callees, merged. */
import { Frames, type Order } from "./frames";

export interface Sandwich {
  callers: Frames;
  callees: Frames;
}

/** The outermost calls of a recursive function. */
export function sandwichOf(frames: Frames, name: string, order: Order): Sandwich {
  const callers = new Tree(frames, name);
  const callees = new Tree(frames, name);
  for (const frame of outermost(frames, name)) {
    callers.selfNs += frames.self_ns[frame];
    callees.selfNs += frames.self_ns[frame];
    callers.totalNs += frames.total[frame];
    callees.totalNs += frames.total[frame];
    addCallers(callers, frames, frame);
    addCallees(callees, frames, frame);
  }
  return { callers: callers.built(order), callees: callees.built(order) };
}

/** The frames without those whose names are hidden: their self time is their callers', and so are their callees. */
export function withoutHidden(frames: Frames, isHidden: (name: string) => boolean, order: Order): Frames {
  const hides = frames.texts.map(isHidden);
  const tree = new Tree(frames, frames.nameOf(frames.root));
  tree.selfNs = frames.self_ns[frames.root];
  tree.totalNs = frames.total[frames.root];
  const open = inReverse(frames, frames.root, 0);
  for (let next = open.pop(); next; next = open.pop()) {
    const { frame, below } = next;
    const isKept = !hides[frames.names[frame]];
    const index = isKept ? tree.index(below, frames.names[frame]) : below;
    if (isKept) tree.add(index, frames.self_ns[frame], frames.total[frame], frames.calls[frame]);
    else if (below) tree.add(below, frames.self_ns[frame], 0, 0);
    else tree.selfNs += frames.self_ns[frame];
    open.push(...inReverse(frames, frame, index));
  }
  return tree.built(order);
}

function outermost(frames: Frames, name: string): number[] {
  const found: number[] = [];
  const open = [frames.root];
  for (let frame = open.pop(); frame !== undefined; frame = open.pop()) {
    if (frame !== frames.root && frames.nameOf(frame) === name) found.push(frame);
    else open.push(...frames.calleesOf(frame));
  }
  return found;
}

/** Callers with the time that the function took for them. */
function addCallers(tree: Tree, frames: Frames, frame: number): void {
  let index = 0;
  for (let caller = frames.callers[frame]; caller >= 0 && caller !== frames.root; caller = frames.callers[caller]) {
    index = tree.index(index, frames.names[caller]);
    tree.add(index, 0, frames.total[frame], frames.calls[frame]);
  }
}

function addCallees(tree: Tree, frames: Frames, top: number): void {
  const open = inReverse(frames, top, 0);
  for (let next = open.pop(); next; next = open.pop()) {
    const { frame, below } = next;
    const index = tree.index(below, frames.names[frame]);
    tree.add(index, frames.self_ns[frame], frames.total[frame], frames.calls[frame]);
    open.push(...inReverse(frames, frame, index));
  }
}

/** Callees in reverse order, for a stack. */
function inReverse(frames: Frames, frame: number, below: number): { frame: number; below: number }[] {
  return [...frames.calleesOf(frame)].reverse().map((frame) => ({ frame, below }));
}

/** A tree of merged frames by call path. An index is that of a frame plus 1; 0 is the function itself. */
class Tree {
  selfNs = 0;
  totalNs = 0;
  readonly #names: number[] = [];
  readonly #callers: number[] = [];
  readonly #sums: [self_ns: number, total: number, calls: number][] = [];
  readonly #indices = new Map<string, number>();

  constructor(
    readonly frames: Frames,
    readonly title: string,
  ) {}

  index(caller: number, name: number): number {
    const key = `${caller} ${name}`;
    const known = this.#indices.get(key);
    if (known) return known;
    this.#names.push(name);
    this.#callers.push(caller);
    this.#sums.push([0, 0, 0]);
    this.#indices.set(key, this.#names.length);
    return this.#names.length;
  }

  add(index: number, self_ns: number, total: number, calls: number): void {
    const sums = this.#sums[index - 1];
    sums[0] += self_ns;
    sums[1] += total;
    sums[2] += calls;
  }

  built(order: Order): Frames {
    const [self_ns, total, calls] = [0, 1, 2].map((at) => this.#sums.map((sums) => sums[at]));
    const texts = this.frames.texts.slice(0, -1); // the last one is the root's, which is added again
    const columns = {
      ...{ title: this.title, texts, total_ns: this.totalNs, root_self_ns: this.selfNs },
      ...{ names: this.#names, callers: this.#callers, self_ns, total, num_calls: calls },
      firsts: this.#names.map((_, at) => at),
    };
    return new Frames<number[]>(columns, { numbers: (column) => column }, order);
  }
}
