import { firstWhere } from "./data";
import { UNIT, type Lane } from "./lanes";
import type { Stage } from "./stage";
import { spanAt } from "./strip";

const SLACK_PIXELS = 3;

/** A part of the page that shows tracks and scrolls by itself: all of them, or those that are pinned above. */
export class Pane {
  lanes: Lane[] = [];
  height = 500;
  scrollTop = 0;
  /** Scrolls the tracks; the component that has them sets it. */
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

  /** Where a span's row is: that of its rank where the rank is closed. */
  laneOf(span: number): Lane | undefined {
    const { data } = this.stage;
    const row = data.rowOf(span);
    const { rank } = data.tracks[data.rows[row].track];
    const head = this.isPinned ? undefined : this.lanes.find((lane) => lane.kind === "group" && lane.rank === rank);
    return this.#laneOfRow.get(row) ?? head;
  }

  /** Rows of boxes that are on the screen. */
  visibleRows(): number[] {
    const [top, bottom] = [this.scrollTop / UNIT, (this.scrollTop + this.height) / UNIT];
    const shown = this.lanes.filter((lane) => lane.unit + lane.units > top && lane.unit < bottom);
    return shown.flatMap((lane) => lane.rows);
  }

  /** All rows of the tracks between two heights. */
  rowsBetween(y: number, other: number): number[] {
    const { data } = this.stage;
    const [top, bottom] = [Math.min(y, other), Math.max(y, other)].map((y) => Math.floor((y + this.scrollTop) / UNIT));
    const touched = this.lanes.filter((lane) => lane.unit + lane.units > top && lane.unit <= bottom);
    const tracks = new Set(touched.flatMap((lane) => lane.rows).map((row) => data.rows[row].track));
    return [...tracks].sort((one, other) => one - other).flatMap((track) => data.rowsOfTrack[track]);
  }
}
