/** The visible time range, in nanoseconds after the origin. */
export interface View {
  from: number;
  to: number;
}

const SHORTEST_NS = 20;
const MARGIN = 0.02;

/** The whole range, with margins. */
export function wholeView([from, to]: [number, number]): View {
  const room = Math.max(SHORTEST_NS, (to - from) * MARGIN);
  return { from: from - room, to: to + room };
}

/** The range limited to the whole, and to the minimal length. */
export function within({ from, to }: View, whole: View): View {
  const length = Math.min(Math.max(to - from, SHORTEST_NS), whole.to - whole.from);
  const begin = Math.min(Math.max(from, whole.from), whole.to - length);
  return { from: begin, to: begin + length };
}

/** Zoom around a time, which keeps its position; a factor below 1 zooms in. */
export function zoomed(view: View, factor: number, time: number): View {
  const length = Math.max((view.to - view.from) * factor, SHORTEST_NS);
  const share = (time - view.from) / (view.to - view.from);
  return { from: time - share * length, to: time + (1 - share) * length };
}

export function moved(view: View, by: number): View {
  return { from: view.from + by, to: view.to + by };
}

/** A range with a span in its middle, long enough to show it. */
export function viewOf(view: View, begin: number, duration: number): View {
  const length = view.to - view.from;
  const isFine = duration > length / 60 && duration < length * 0.9;
  const wanted = isFine ? length : Math.max(duration * 5, SHORTEST_NS * 5);
  const middle = begin + duration / 2;
  return { from: middle - wanted / 2, to: middle + wanted / 2 };
}
