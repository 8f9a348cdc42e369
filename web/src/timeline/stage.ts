import { useEffect, useState } from "preact/hooks";
import type { StepRow } from "../page_data";
import { firstWhere } from "./binary_search";
import type { CounterData } from "./counters";
import type { TimelineData } from "./data";
import { Fold } from "./fold";
import { allKeys, buildLanes, closedAtFirst, groupKey, pinnedLanes, trackKey, UNIT, type Lane } from "./lanes";
import { arrowsAt, type Arrow } from "./relations";
import { stepsOf } from "./ruler";
import { findMatches, nextMatch, type Matches } from "./search";
import { spansOfModules } from "./module_spans";
import { spanAt } from "./pixel_row";
import { moved, viewOf, wholeView, within, zoomed, type View } from "./view";

const SLACK_PIXELS = 3;

/** A measured time range, on some rows or on all. */
export interface Range extends View {
  rows: number[] | null;
  /** True while the reader drags. */
  isMoving?: boolean;
}

export interface Hover {
  /** Null on the ruler. */
  pane: Pane | null;
  x: number;
  y: number;
  time: number;
  span: number | null;
}

export type Panel = "span" | "range" | "table";

interface Parts {
  view: View;
  selected: number | null;
  range: Range | null;
  hover: Hover | null;
  matches: Matches | null;
  isMoving: boolean;
  panel: Panel | null;
  markedRank: number | null;
  outlined: Outlined | null;
  shown: Uint8Array | null;
}

/** The outlined spans of a finding. */
export interface Outlined {
  title: string;
  spans: number[];
}

/** State of the timeline: visible range, selection and search. Gestures change it, canvases and panels show it. */
export class Stage implements Parts {
  view: View;
  /** All tracks, and the pinned ones above them. */
  readonly main = new Pane(this, false);
  readonly pinned = new Pane(this, true);
  /** Steps of one rank. */
  steps: StepRow[];
  selected: number | null = null;
  range: Range | null = null;
  hover: Hover | null = null;
  matches: Matches | null = null;
  /** A drag moves the view; otherwise it measures an area. */
  isMoving = false;
  panel: Panel | null = null;
  markedRank: number | null = null;
  outlined: Outlined | null = null;
  /** For each span: does it belong to the chosen module; null without one. Others are grey. */
  shown: Uint8Array | null = null;
  #shownRows: string | null = null;
  arrows: Arrow[] = [];
  width = 1000;
  readonly whole: View;
  #pins: number[] = [];
  #closed: Set<string>;
  readonly #listeners = new Set<() => void>();

  /** `allSteps` have their starts in folded time, as all drawn data. */
  constructor(
    readonly data: TimelineData,
    readonly counters: CounterData[],
    readonly allSteps: StepRow[],
    readonly fold = new Fold(),
  ) {
    this.steps = stepsOf(allSteps, null);
    this.whole = wholeView(extentWith(data, counters, this.steps));
    this.view = this.whole;
    this.#closed = closedAtFirst(data, counters);
    this.#layOut();
  }

  /** Call a function after each change; returns a function that removes it. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  change(changes: Partial<Parts>): void {
    Object.assign(this, changes);
    for (const listener of this.#listeners) listener();
  }

  get nsPerPixel(): number {
    return (this.view.to - this.view.from) / this.width;
  }

  timeAt(x: number): number {
    return this.view.from + x * this.nsPerPixel;
  }

  xOf(time: number): number {
    return (time - this.view.from) / this.nsPerPixel;
  }

  show(view: View): void {
    this.change({ view: within(view, this.whole), hover: null });
  }

  zoom(factor: number, x = this.width / 2): void {
    this.show(zoomed(this.view, factor, this.timeAt(x)));
  }

  pan(pixels: number): void {
    this.show(moved(this.view, pixels * this.nsPerPixel));
  }

  /** Select a span, and optionally move the view there. */
  select(span: number | null, shouldMove = false): void {
    this.arrows = span === null ? [] : arrowsAt(this.data, span);
    const panel = span === null ? (this.panel === "span" ? null : this.panel) : "span";
    this.change({ selected: span, panel });
    if (span !== null && shouldMove) this.reveal(span);
  }

  /** Centre a span, and open its group. */
  reveal(span: number): void {
    this.show(viewOf(this.view, this.data.begins[span], this.data.durations[span]));
    this.scrollToSpan(span);
  }

  /** Open the group of a span, and scroll to its row. */
  scrollToSpan(span: number): void {
    this.#openTrackOf(span);
    const { main } = this;
    const top = (main.laneOf(span)?.unit ?? 0) * UNIT;
    const isInView = top >= main.scrollTop + UNIT && top + 2 * UNIT <= main.scrollTop + main.height;
    if (!isInView) main.scrollTo(top - main.height / 3);
  }

  #openTrackOf(span: number): void {
    const { track } = this.data.rows[this.data.rowOf(span)];
    this.#open([groupKey(this.data.tracks[track].rank), trackKey(track)]);
  }

  /** Open a rank, scroll to it, and mark its name; the ruler shows its steps. */
  goToRank(rank: number): void {
    this.#open([groupKey(rank)]);
    const lane = this.main.lanes.find((lane) => lane.kind === "group" && lane.rank === rank);
    if (lane) this.steps = stepsOf(this.allSteps, rank);
    this.change({ markedRank: lane ? rank : null });
    if (lane) this.main.scrollTo(lane.unit * UNIT);
  }

  #open(keys: string[]): void {
    if (keys.some((key) => this.#closed.has(key))) this.#close(keys, false);
  }

  toggle(key: string): void {
    this.#close([key], !this.#closed.has(key));
  }

  /** Close all ranks, or open all. */
  closeAll(shouldClose: boolean): void {
    this.#close(allKeys(this.data, this.counters), shouldClose);
  }

  #close(keys: string[], shouldClose: boolean): void {
    for (const key of keys) {
      if (shouldClose) this.#closed.add(key);
      else this.#closed.delete(key);
    }
    this.#layOut();
    this.change({ hover: null });
  }

  #layOut(): void {
    this.main.layOut(buildLanes(this.data, this.counters, this.#closed));
    this.pinned.layOut(pinnedLanes(this.data, this.#pins, this.#closed));
  }

  get pins(): readonly number[] {
    return this.#pins;
  }

  /** Pin tracks above the others. */
  pin(tracks: number[]): void {
    this.#pins = [...new Set(tracks)].filter((track) => this.data.tracks[track] !== undefined);
    this.#layOut();
    this.change({ hover: null });
  }

  togglePin(track: number): void {
    this.pin(this.#pins.includes(track) ? this.#pins.filter((other) => other !== track) : [...this.#pins, track]);
  }

  search(query: string): void {
    this.change({ matches: findMatches(this.data, query, this.shown) });
  }

  /** Show the spans of rows of modules, from `at` to before `end`; null shows all. */
  showModule(rows: { at: number; end: number } | null): void {
    const key = rows && `${rows.at}-${rows.end}`;
    if (key === this.#shownRows) return;
    this.#shownRows = key;
    this.change({ shown: rows && spansOfModules(this.data, rows.at, rows.end) });
    if (this.matches) this.search(this.matches.query);
  }

  /** Select the next or previous match in time. */
  goToMatch(isForward: boolean): void {
    if (!this.matches?.count) return;
    this.select(nextMatch(this.data, this.matches, this.selected, isForward), true);
  }

  /** Select a neighbour of the selected span on its track. */
  selectNear(where: "before" | "after" | "around" | "inside"): void {
    if (this.selected === null) return;
    const near = this.data.neighbour(this.selected, where);
    if (near !== null) this.select(near, !this.isInView(near));
  }

  isInView(span: number): boolean {
    const { from, to } = this.view;
    const lane = this.main.laneOf(span);
    const top = (lane?.unit ?? 0) * UNIT - this.main.scrollTop;
    const isInTime = this.data.begins[span] < to && this.data.end(span) > from;
    return isInTime && lane !== undefined && top >= 0 && top + UNIT <= this.main.height;
  }

  togglePanel(panel: Panel): void {
    this.change({ panel: this.panel === panel ? null : panel });
  }

  clearRange(): void {
    this.change({ range: null, panel: this.panel === "range" ? null : this.panel });
  }

  /** Undo one thing: the panel, then the selection, then the search. */
  escape(): void {
    if (this.panel === "table") this.change({ panel: null });
    else if (this.range) this.clearRange();
    else if (this.isMoving) this.change({ isMoving: false });
    else if (this.selected !== null) this.select(null);
    else if (this.matches) this.search("");
    else if (this.outlined) this.change({ outlined: null });
  }
}

function extentWith(data: TimelineData, counters: CounterData[], steps: StepRow[]): [number, number] {
  const extents = [
    ...(data.size ? [data.extent()] : []),
    ...steps.map(({ begin_ns, duration_ns }) => [begin_ns, begin_ns + duration_ns]),
    ...counters.filter(({ times }) => times.length).map(({ times }) => [times[0], times[times.length - 1]]),
  ];
  if (!extents.length) return [0, 1];
  return [Math.min(...extents.map(([from]) => from)), Math.max(...extents.map(([, to]) => to))];
}

/** A part of the state; the component is rendered again when it changes. */
export function useStage<T>(stage: Stage, pick: (stage: Stage) => T): T {
  const [part, setPart] = useState(() => pick(stage));
  useEffect(() => {
    const update = () => setPart(() => pick(stage));
    update();
    return stage.listen(update);
  }, [stage]);
  return part;
}

/** A scrolling area with tracks: all of them, or the pinned ones. */
export class Pane {
  lanes: Lane[] = [];
  height = 500;
  scrollTop = 0;
  /** Scrolls the tracks; set by the component. */
  scrollTo: (top: number) => void = () => undefined;
  #laneOfRow = new Map<number, Lane>();

  constructor(
    readonly stage: Stage,
    readonly isPinned: boolean,
  ) {}

  layOut(lanes: Lane[]): void {
    this.lanes = lanes;
    this.#laneOfRow = new Map(lanes.flatMap((lane) => lane.rows.map((row) => [row, lane])));
  }

  get tracksHeight(): number {
    const last = this.lanes[this.lanes.length - 1];
    return last ? (last.unit + last.units) * UNIT : 0;
  }

  laneAt(y: number): Lane | undefined {
    const unit = Math.floor((y + this.scrollTop) / UNIT);
    return this.lanes[firstWhere(0, this.lanes.length, (at) => this.lanes[at].unit + this.lanes[at].units > unit)];
  }

  spanAt(x: number, y: number): number | null {
    const { data, nsPerPixel } = this.stage;
    for (const row of [...(this.laneAt(y)?.rows ?? [])].reverse()) {
      const span = spanAt(data, data.rows[row], this.stage.timeAt(x), SLACK_PIXELS * nsPerPixel);
      if (span !== null) return span;
    }
    return null;
  }

  /** The vertical position of a span's row; of its rank if that is closed. */
  laneOf(span: number): Lane | undefined {
    const { data } = this.stage;
    const row = data.rowOf(span);
    const { rank } = data.tracks[data.rows[row].track];
    const head = this.isPinned ? undefined : this.lanes.find((lane) => lane.kind === "group" && lane.rank === rank);
    return this.#laneOfRow.get(row) ?? head;
  }

  /** The visible rows. */
  visibleRows(): number[] {
    const [top, bottom] = [this.scrollTop / UNIT, (this.scrollTop + this.height) / UNIT];
    const shown = this.lanes.filter((lane) => lane.unit + lane.units > top && lane.unit < bottom);
    return shown.flatMap((lane) => lane.rows);
  }

  /** All rows between two heights. */
  rowsBetween(y: number, other: number): number[] {
    const { data } = this.stage;
    const [top, bottom] = [Math.min(y, other), Math.max(y, other)].map((y) => Math.floor((y + this.scrollTop) / UNIT));
    const touched = this.lanes.filter((lane) => lane.unit + lane.units > top && lane.unit <= bottom);
    const tracks = new Set(touched.flatMap((lane) => lane.rows).map((row) => data.rows[row].track));
    return [...tracks].sort((one, other) => one - other).flatMap((track) => data.rowsOfTrack[track]);
  }
}
