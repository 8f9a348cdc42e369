/** The timeline as a trace in the Chrome format, for Perfetto. */
import type { Track } from "../page_data";
import type { TimelineData } from "./data";
import type { Fold } from "./fold";

/** Spans per part of the text: a single string may not be of any length. */
const PART_SIZE = 20_000;
/** Viewers take thread 0, and the one with the number of its process, for the main thread. */
const FIRST_THREAD = 1_000_000;

/**
 * All spans of the page with their arguments, in microseconds after `originNs` in unix time. A rank is a process; a
 * track is a thread, and spans that do not nest in it have threads of their own, since Perfetto would drop them.
 */
export function chromeTrace(data: TimelineData, fold: Fold, originNs: string): Blob {
  const parts: string[] = [];
  const threads = threadsOf(data);
  let events: object[] = [];
  const flush = () => {
    if (events.length) parts.push((parts.length ? "," : "") + events.map((event) => JSON.stringify(event)).join(","));
    events = [];
  };
  for (const row of data.rows) {
    const track = data.tracks[row.track];
    const pid = processOf(track);
    for (const tid of new Set(threads.subarray(row.first, row.end))) events.push(...namesOf(track, pid, tid));
    for (let span = row.first; span < row.end; span++) {
      const times = { ts: microseconds(fold.real(data.begins[span])), dur: microseconds(data.durations[span]) };
      const about = { name: data.name(span), cat: data.category(span), args: data.argsOf(span) ?? {} };
      events.push({ ph: "X", pid, tid: threads[span], ...times, ...about });
      if (events.length >= PART_SIZE) flush();
    }
  }
  flush();
  const head = `{"baseTimeNanoseconds":${/^\d+$/.test(originNs) ? originNs : 0},"traceEvents":[`;
  return new Blob([head, ...parts, "]}"], { type: "application/json" });
}

/** The thread of each span: its parent's, the track's on the first row, or else the row's own. */
function threadsOf(data: TimelineData): Uint32Array {
  const threads = new Uint32Array(data.size);
  for (const [at, row] of data.rows.entries()) {
    for (let span = row.first; span < row.end; span++) {
      const parent = row.depth ? data.parent(span) : null;
      threads[span] = parent === null ? FIRST_THREAD + at : threads[parent];
    }
  }
  return threads;
}

/** Whole nanoseconds as microseconds. */
function microseconds(ns: number): number {
  return Number((ns / 1000).toFixed(3));
}

/** Process 0 has the tracks without a rank. */
function processOf({ rank }: Track): number {
  return rank === null ? 0 : rank + 1;
}

function namesOf(track: Track, pid: number, tid: number): object[] {
  const process = track.rank === null ? track.process : `Rank ${track.rank}`;
  const name = track.kind === "markers" ? `${track.name}: markers` : track.name;
  return [
    { ph: "M", pid, tid, name: "process_name", args: { name: process } },
    { ph: "M", pid, tid, name: "thread_name", args: { name } },
    { ph: "M", pid, tid, name: "thread_sort_index", args: { sort_index: tid } },
  ];
}
