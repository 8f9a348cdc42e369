import type { Track } from "../page_data";
import type { CounterData } from "./counters";
import type { TimelineData } from "./data";

/** Height of a row in CSS pixels. */
export const UNIT = 18;

/** A horizontal strip: a heading, the rows drawn there, or a counter. */
export interface Lane {
  /** Key of the group that it opens and closes; null without one. */
  key: string | null;
  kind: "group" | "track" | "row" | "counters" | "counter";
  title: string;
  note: string;
  isOpen: boolean;
  rows: number[];
  counter: number | null;
  /** Set for the first lane of a track. */
  track: number | null;
  unit: number;
  units: number;
  rank: number | null;
}

interface Group {
  rank: number | null;
  title: string;
  tracks: number[];
  counters: number[];
}

const MAX_OPEN_RANKS = 4;
const MAX_OPEN_COUNTERS = 8;
const COUNTER_UNITS = 2;
const DEVICE = /stream|device|gpu|kernel/i;

export const groupKey = (rank: number | null) => `rank ${rank}`;
export const trackKey = (track: number) => `track ${track}`;
const countersKey = (rank: number | null) => `counters ${rank}`;

/** The groups that are closed at first: all ranks but the first if there are many, and many counters. */
export function closedAtFirst(data: TimelineData, counters: CounterData[]): Set<string> {
  const groups = groupsOf(data.tracks, counters);
  const closed = groups.length > MAX_OPEN_RANKS ? groups.slice(1).map((group) => groupKey(group.rank)) : [];
  const full = groups.filter((group) => group.counters.length > MAX_OPEN_COUNTERS);
  return new Set([...closed, ...full.map((group) => countersKey(group.rank))]);
}

/** All groups that can be closed. */
export function allKeys(data: TimelineData, counters: CounterData[]): string[] {
  return groupsOf(data.tracks, counters).map((group) => groupKey(group.rank));
}

export function buildLanes(data: TimelineData, counters: CounterData[], closed: ReadonlySet<string>): Lane[] {
  const lanes = groupsOf(data.tracks, counters).flatMap((group) => {
    const key = groupKey(group.rank);
    const isOpen = !closed.has(key);
    const head = lane({ key, kind: "group", title: group.title, isOpen, rank: group.rank });
    if (!isOpen) return [{ ...head, rows: summaryRows(data, group) }];
    const tracks = group.tracks.flatMap((track) => trackLanes(data, track, closed));
    return [head, ...tracks, ...counterLanes(group, counters, closed)];
  });
  return layOut(lanes);
}

/** The pinned tracks in order; of several ranks, with rank names. */
export function pinnedLanes(data: TimelineData, tracks: readonly number[], closed: ReadonlySet<string>): Lane[] {
  return layOut(
    tracks.flatMap((track) => {
      const { rank } = data.tracks[track];
      const [head, ...others] = trackLanes(data, track, closed);
      return [{ ...head, title: rank === null ? head.title : `Rank ${rank}: ${head.title}` }, ...others];
    }),
  );
}

function layOut(lanes: Lane[]): Lane[] {
  let unit = 0;
  for (const lane of lanes) {
    lane.unit = unit;
    unit += lane.units;
  }
  return lanes;
}

function groupsOf(tracks: Track[], counters: CounterData[]): Group[] {
  const groups = new Map<number | null, Group>();
  const groupOf = (rank: number | null, process: string): Group => {
    let group = groups.get(rank);
    if (!group) {
      group = { rank, title: rank === null ? process || "No rank" : `Rank ${rank}`, tracks: [], counters: [] };
      groups.set(rank, group);
    }
    return group;
  };
  tracks.forEach((track, at) => groupOf(track.rank, track.process).tracks.push(at));
  counters.forEach((counter, at) => groupOf(counter.rank, "Counters").counters.push(at));
  return [...groups.values()];
}

function trackLanes(data: TimelineData, at: number, closed: ReadonlySet<string>): Lane[] {
  const { rank, kind, name, process, num_left_out } = data.tracks[at];
  const rows = data.rowsOfTrack[at];
  const key = rows.length > 1 ? trackKey(at) : null;
  const isOpen = key === null || !closed.has(key);
  const note = [process, num_left_out ? `${num_left_out} short spans are not shown` : ""].filter(Boolean).join("; ");
  const title = kind === "markers" || kind === "modules" ? `${name}: ${kind}` : name;
  const head = lane({
    key,
    kind: "track",
    title,
    note,
    isOpen,
    rank,
    track: at,
    rows: isOpen ? rows.slice(0, 1) : rows,
  });
  const others = isOpen ? rows.slice(1).map((row) => lane({ kind: "row", rank, rows: [row] })) : [];
  return [head, ...others];
}

function counterLanes(group: Group, counters: CounterData[], closed: ReadonlySet<string>): Lane[] {
  if (!group.counters.length) return [];
  const { rank } = group;
  const key = countersKey(rank);
  const isOpen = !closed.has(key);
  const head = lane({ key, kind: "counters", title: `Counters (${group.counters.length})`, isOpen, rank });
  const shown = isOpen ? group.counters : [];
  const units = COUNTER_UNITS;
  return [head, ...shown.map((at) => lane({ kind: "counter", title: counters[at].name, counter: at, units, rank }))];
}

function lane(given: Partial<Lane> & Pick<Lane, "kind">): Lane {
  const rest = {
    key: null,
    title: "",
    note: "",
    isOpen: true,
    rows: [],
    counter: null,
    track: null,
    ...{ unit: 0, units: 1, rank: null },
  };
  return { ...rest, ...given };
}

/** Content of a closed rank: its device, or else its threads. */
function summaryRows(data: TimelineData, group: Group): number[] {
  const device = group.tracks.filter((track) => DEVICE.test(data.tracks[track].kind));
  return (device.length ? device : group.tracks).flatMap((track) => data.rowsOfTrack[track]);
}
