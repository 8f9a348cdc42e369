import type { TimelineData } from "./data";

/** A related span, with its relation. */
export interface Relation {
  span: number;
  how: string;
}

const MAX_LAUNCHED = 200;
const PYTHON = /python_function/;

/** The launch of a kernel, then its ancestors, the innermost first; for a CPU span its callers. */
export function callersOf(data: TimelineData, span: number): Relation[] {
  const launch = launchOf(data, span);
  const inner = launch ?? span;
  const callers = data.ancestors(inner).map((outer) => ({ span: outer, how: howItCalls(data, outer) }));
  return launch === null ? callers : [{ span: launch, how: "Launch" }, ...callers];
}

export function launchOf(data: TimelineData, span: number): number | null {
  const launch = data.columns.launches[span];
  return launch ? launch - 1 : null;
}

function howItCalls(data: TimelineData, span: number): string {
  const category = data.category(span);
  if (PYTHON.test(category)) return "Python";
  return /^cpu_op$|operator/.test(category) ? "Operator" : /annotation|marker/.test(category) ? "Marker" : "Call";
}

/** Kernels launched by a span or its descendants, in the order of their launches, up to a limit. */
export function launchedBy(data: TimelineData, span: number): number[] {
  const { launches } = data.columns;
  const track = data.rows[data.rowOf(span)].track;
  const rows = data.rowsOfTrack[track].map((row) => data.rows[row]);
  const [first, end] = [rows[0].first, rows[rows.length - 1].end];
  const [begin, finish] = [data.begins[span], data.end(span)];
  const found: number[] = [];
  for (let kernel = 0; kernel < launches.length && found.length < MAX_LAUNCHED; kernel++) {
    const launch = launches[kernel] - 1;
    if (launch < first || launch >= end) continue;
    if (data.begins[launch] >= begin && data.end(launch) <= finish) found.push(kernel);
  }
  return found;
}

/** An arrow from one span to another. */
export interface Arrow {
  from: number;
  to: number;
  name: string;
}

/** The arrows of a span: from its launch, to its kernels, and the flows of the trace. */
export function arrowsAt(data: TimelineData, span: number): Arrow[] {
  const launch = launchOf(data, span);
  const launches = launch === null ? [] : [{ from: launch, to: span, name: "launch" }];
  const { launches: launchers } = data.columns;
  for (let kernel = launchers.indexOf(span + 1); kernel >= 0; kernel = launchers.indexOf(span + 1, kernel + 1)) {
    launches.push({ from: span, to: kernel, name: "launch" });
  }
  return [...launches, ...flowsAt(data, span)];
}

function flowsAt(data: TimelineData, span: number): Arrow[] {
  const { sources, targets, names } = data.flows;
  const found: Arrow[] = [];
  for (let flow = 0; flow < sources.length; flow++) {
    if (sources[flow] !== span && targets[flow] !== span) continue;
    found.push({ from: sources[flow], to: targets[flow], name: data.texts[names[flow]] ?? "" });
  }
  return found;
}
