/** The part of time that is in view, in nanoseconds after the origin. */
export interface View {
  from: number;
  to: number;
}

const SHORTEST_NS = 20;
const MARGIN = 0.02;

/** All there is, with a little room at both ends. */
export function wholeView([from, to]: [number, number]): View {
  const room = Math.max(SHORTEST_NS, (to - from) * MARGIN);
  return { from: from - room, to: to + room };
}

/** The view within the whole, and not shorter than can be shown. */
export function within({ from, to }: View, whole: View): View {
  const length = Math.min(Math.max(to - from, SHORTEST_NS), whole.to - whole.from);
  const begin = Math.min(Math.max(from, whole.from), whole.to - length);
  return { from: begin, to: begin + length };
}

/** Zooms so that what is at a time stays where it is; a factor below 1 zooms in. */
export function zoomed(view: View, factor: number, time: number): View {
  const length = Math.max((view.to - view.from) * factor, SHORTEST_NS);
  const share = (time - view.from) / (view.to - view.from);
  return { from: time - share * length, to: time + (1 - share) * length };
}

export function moved(view: View, by: number): View {
  return { from: view.from + by, to: view.to + by };
}

/** A view that has a span in its middle, and long enough to be seen. */
export function viewOf(view: View, begin: number, duration: number): View {
  const length = view.to - view.from;
  const isFine = duration > length / 60 && duration < length * 0.9;
  const wanted = isFine ? length : Math.max(duration * 5, SHORTEST_NS * 5);
  const middle = begin + duration / 2;
  return { from: middle - wanted / 2, to: middle + wanted / 2 };
}
