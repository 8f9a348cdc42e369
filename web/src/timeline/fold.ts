/** Folded time: recorded windows with short gaps between them. */
import { firstWhere } from "./binary_search";

export interface Gap {
  /** Start of the gap in folded time. */
  from: number;
  to: number;
  /** Recorded length of the gap. */
  lengthNs: number;
}

const GAP_SHARE = 0.02;
/** Shorter gaps, relative to their drawn width, are not folded. */
const MIN_FOLDED_RATIO = 2;

/** Conversion between recorded and folded time. Lengths differ in gaps only. */
export class Fold {
  readonly gaps: Gap[] = [];
  /** Recorded starts of folded gaps. */
  readonly #begins: number[] = [];
  readonly #lefts: number[] = [];

  constructor(windows: [from: number, to: number][] = []) {
    const recorded = windows.reduce((sum, [from, to]) => sum + to - from, 0);
    const width = Math.max(1, GAP_SHARE * recorded);
    let removed = 0;
    windows.slice(1).forEach(([next], at) => {
      const end = windows[at][1];
      const lengthNs = next - end;
      if (lengthNs < MIN_FOLDED_RATIO * width) return;
      this.gaps.push({ from: end - removed, to: end - removed + width, lengthNs });
      this.#begins.push(end);
      this.#lefts.push(end - removed);
      removed += lengthNs - width;
    });
  }

  /** Convert recorded to folded time. */
  folded(time: number): number {
    const at = this.#before(this.#begins, time);
    if (at < 0) return time;
    const { from, to, lengthNs } = this.gaps[at];
    const since = time - this.#begins[at];
    return since < lengthNs ? from + (since * (to - from)) / lengthNs : to + since - lengthNs;
  }

  /** Convert folded to recorded time. */
  real(folded: number): number {
    const at = this.#before(this.#lefts, folded);
    if (at < 0) return folded;
    const { from, to, lengthNs } = this.gaps[at];
    const within = folded < to ? ((folded - from) * lengthNs) / (to - from) : folded - to + lengthNs;
    return this.#begins[at] + within;
  }

  /** Recorded time between two folded times. */
  lengthOf(from: number, to: number): number {
    return this.real(to) - this.real(from);
  }

  /** Time between two folded times outside of gaps. */
  recordedIn(from: number, to: number): number {
    return this.gaps.reduce(
      (left, gap) => left - Math.max(0, Math.min(to, gap.to) - Math.max(from, gap.from)),
      to - from,
    );
  }

  /** The visible parts between gaps, with the difference of recorded and folded time. */
  segments(from: number, to: number): { from: number; to: number; later: number }[] {
    const ends = [-Infinity, ...this.gaps.flatMap((gap) => [gap.from, gap.to]), Infinity];
    const found: { from: number; to: number; later: number }[] = [];
    for (let at = 0; at < ends.length; at += 2) {
      const [begin, end] = [Math.max(from, ends[at]), Math.min(to, ends[at + 1])];
      if (begin < end) found.push({ from: begin, to: end, later: this.real((begin + end) / 2) - (begin + end) / 2 });
    }
    return found;
  }

  #before(begins: number[], time: number): number {
    return firstWhere(0, begins.length, (at) => begins[at] > time) - 1;
  }
}
