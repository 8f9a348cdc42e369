import { formatValue, linePoints, valueAt } from "./counters";
import { UNIT, type Lane } from "./lanes";
import type { Palette } from "./palette";
import type { Pane, Stage } from "./stage";
import { fillStrip } from "./pixel_row";

const GAP = 2;
const LABEL_PIXELS = 40;
const PADDING = 4;
const FONT = "11px system-ui, sans-serif";
const MAX_ARROWS = 200;
const FAR_PIXELS = 60;

/** Draw the tracks: each row as a line of pixels that is stretched, then the names that fit. */
export class TrackPainter {
  readonly #strips = document.createElement("canvas");
  #image: ImageData | null = null;
  #pixels = new Uint32Array(0);
  readonly #widths = new Map<string, number>();

  draw(context: CanvasRenderingContext2D, pane: Pane, palette: Palette): void {
    const { stage, height, scrollTop } = pane;
    const { width } = stage;
    const ratio = context.canvas.width / width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.ground;
    context.fillRect(0, 0, width, height);
    const first = Math.floor(scrollTop / UNIT);
    const units = Math.ceil((scrollTop + height) / UNIT) - first;
    const lanes = pane.lanes.filter((lane) => lane.unit + lane.units > first && lane.unit < first + units);
    drawHeadings(context, pane, lanes, palette);
    drawSteps(context, pane, palette);
    const wide = this.#drawStrips(context, pane, lanes, first, units, palette);
    context.font = FONT;
    context.textBaseline = "middle";
    this.#drawNames(context, stage, wide, palette, ratio);
    for (const lane of lanes) if (lane.counter !== null) drawCounter(context, pane, lane, palette);
    drawGaps(context, pane, palette);
    drawMarks(context, pane, palette);
  }

  /** Draw all visible boxes; returns those wide enough for a name: span, left, right and top of each. */
  #drawStrips(
    context: CanvasRenderingContext2D,
    pane: Pane,
    lanes: Lane[],
    first: number,
    units: number,
    palette: Palette,
  ): number[] {
    const { stage } = pane;
    const columns = context.canvas.width;
    const ratio = columns / stage.width;
    const image = this.#imageOf(columns, units);
    this.#pixels.fill(0, 0, columns * units);
    const wide: number[] = [];
    for (const lane of lanes) {
      const at = (lane.unit - first) * columns;
      const line = at < 0 ? null : this.#pixels.subarray(at, at + columns);
      const names = lane.rows.length === 1 ? wide : null;
      const top = lane.unit * UNIT - pane.scrollTop;
      for (const row of line ? lane.rows : []) {
        const from = wide.length;
        fillStrip(line!, stage.data, stage.data.rows[row], stage.view, palette, names, LABEL_PIXELS * ratio);
        for (let offset = from; offset < wide.length; offset += 4) wide[offset + 3] = top;
      }
    }
    this.#strips.getContext("2d")!.putImageData(image, 0, 0, 0, 0, columns, units);
    context.imageSmoothingEnabled = false;
    const top = first * UNIT - pane.scrollTop;
    context.drawImage(this.#strips, 0, 0, columns, units, 0, top, stage.width, units * UNIT);
    for (const lane of lanes) if (lane.rows.length) clearGap(context, pane, lane, palette);
    return wide;
  }

  #imageOf(columns: number, units: number): ImageData {
    if (!this.#image || this.#image.width !== columns || this.#image.height < units) {
      this.#image = new ImageData(columns, units + 8);
      this.#pixels = new Uint32Array(this.#image.data.buffer);
      this.#strips.width = columns;
      this.#strips.height = units + 8;
    }
    return this.#image;
  }

  #drawNames(context: CanvasRenderingContext2D, stage: Stage, wide: number[], palette: Palette, ratio: number): void {
    const { data } = stage;
    for (let at = 0; at < wide.length; at += 4) {
      const name = data.columns.names[wide[at]];
      const room = (wide[at + 2] - wide[at + 1]) / ratio - 2 * PADDING;
      context.fillStyle = !palette.shown || palette.shown[wide[at]] ? palette.inks[name] : palette.text;
      const text = this.#shortened(context, data.texts[name], room);
      context.fillText(text, wide[at + 1] / ratio + PADDING, wide[at + 3] + (UNIT - GAP) / 2 + 0.5);
    }
  }

  /** The longest start of a text that fits. */
  #shortened(context: CanvasRenderingContext2D, text: string, room: number): string {
    let free = room;
    for (let at = 0; at < text.length; at++) {
      free -= this.#widthOf(context, text[at]);
      if (free < 0) return at > 2 ? `${text.slice(0, at - 2)}…` : "";
    }
    return text;
  }

  #widthOf(context: CanvasRenderingContext2D, character: string): number {
    let width = this.#widths.get(character);
    if (width === undefined) {
      width = context.measureText(character).width;
      this.#widths.set(character, width);
    }
    return width;
  }
}

function clearGap(context: CanvasRenderingContext2D, pane: Pane, lane: Lane, palette: Palette): void {
  context.fillStyle = palette.ground;
  context.fillRect(0, (lane.unit + lane.units) * UNIT - GAP - pane.scrollTop, pane.stage.width, GAP);
}

function drawHeadings(context: CanvasRenderingContext2D, pane: Pane, lanes: Lane[], palette: Palette): void {
  for (const { kind, unit } of lanes) {
    if (kind !== "group" && kind !== "counters") continue;
    context.fillStyle = palette.panel;
    context.fillRect(0, unit * UNIT - pane.scrollTop, pane.stage.width, UNIT);
  }
}

const CLOSEST_STEPS = 8;

/** Draw a line at the start of each step, unless they are too close. */
function drawSteps(context: CanvasRenderingContext2D, { stage, height }: Pane, palette: Palette): void {
  context.fillStyle = palette.line;
  let last = -Infinity;
  for (const step of stage.steps) {
    const x = Math.round(stage.xOf(step.begin_ns));
    if (x < 0 || x > stage.width || x - last < CLOSEST_STEPS) continue;
    context.fillRect(x, 0, 1, height);
    last = x;
  }
}

/** Draw the folded gaps between windows. */
function drawGaps(context: CanvasRenderingContext2D, { stage, height }: Pane, palette: Palette): void {
  for (const gap of stage.fold.gaps) {
    const [left, right] = [stage.xOf(gap.from), stage.xOf(gap.to)];
    if (right < 0 || left > stage.width) continue;
    context.fillStyle = palette.panel;
    context.fillRect(left, 0, right - left, height);
    context.fillStyle = palette.line;
    for (const x of [left, right - 1]) context.fillRect(Math.round(x), 0, 1, height);
  }
}

function drawCounter(context: CanvasRenderingContext2D, pane: Pane, lane: Lane, palette: Palette): void {
  const { stage } = pane;
  const counter = stage.counters[lane.counter!];
  const { from, to } = stage.view;
  const top = lane.unit * UNIT - pane.scrollTop + 3;
  const height = lane.units * UNIT - 6;
  const perValue = height / (counter.max - counter.min || 1);
  const yOf = (value: number) => top + height - (value - counter.min) * perValue;
  context.fillStyle = palette.accent;
  linePoints(counter, Math.round(stage.width), from, to).forEach((value, x) => {
    if (Number.isNaN(value)) return;
    context.globalAlpha = 0.25;
    context.fillRect(x, yOf(value), 1, top + height - yOf(value));
    context.globalAlpha = 1;
    context.fillRect(x, yOf(value) - 0.75, 1, 1.5);
  });
  if (stage.hover) drawValue(context, pane, lane, yOf, palette);
}

function drawValue(
  context: CanvasRenderingContext2D,
  pane: Pane,
  lane: Lane,
  yOf: (value: number) => number,
  palette: Palette,
): void {
  const { stage } = pane;
  const counter = stage.counters[lane.counter!];
  const { time } = stage.hover!;
  const value = valueAt(counter, time);
  if (value === null) return;
  const x = stage.xOf(time);
  context.fillStyle = palette.text;
  context.beginPath();
  context.arc(x, yOf(value), 3, 0, 7);
  context.fill();
  const text = formatValue(value, counter.unit);
  const width = context.measureText(text).width + 2 * PADDING;
  const left = x + 8 + width > stage.width ? x - 8 - width : x + 8;
  const top = (lane.unit + lane.units / 2) * UNIT - pane.scrollTop;
  context.fillStyle = palette.ground;
  context.fillRect(left, top - 8, width, 16);
  context.fillStyle = palette.text;
  context.fillText(text, left + PADDING, top);
}

const MAX_OUTLINED = 500;

/** Outline the spans of a finding, the selection, its arrows, the hovered span and the measured range. */
function drawMarks(context: CanvasRenderingContext2D, pane: Pane, palette: Palette): void {
  const { stage, height } = pane;
  const { hover, range } = stage;
  outlineAll(context, pane, palette);
  if (hover?.pane === pane && hover.span !== null) outline(context, pane, hover.span, palette.text, 1);
  for (const arrow of stage.arrows.slice(0, MAX_ARROWS)) drawArrow(context, pane, arrow.from, arrow.to, palette);
  if (stage.selected !== null) outline(context, pane, stage.selected, palette.text, 2.5);
  if (hover) {
    context.fillStyle = palette.quiet;
    context.fillRect(Math.round(hover.x), 0, 1, height);
  }
  if (!range) return;
  const [left, right] = [stage.xOf(range.from), stage.xOf(range.to)];
  context.fillStyle = palette.accent;
  context.globalAlpha = 0.15;
  context.fillRect(left, 0, right - left, height);
  context.globalAlpha = 1;
  for (const x of [left, right]) context.fillRect(x - 0.5, 0, 1, height);
}

/** Outline the visible spans of a finding, as far as they can be distinguished. */
function outlineAll(context: CanvasRenderingContext2D, pane: Pane, palette: Palette): void {
  const { outlined, data, view } = pane.stage;
  const inView = (outlined?.spans ?? []).filter((span) => data.begins[span] < view.to && data.end(span) > view.from);
  for (const span of inView.slice(0, MAX_OUTLINED)) outline(context, pane, span, palette.bad, 2);
}

function outline(context: CanvasRenderingContext2D, pane: Pane, span: number, colour: string, thickness: number): void {
  const { stage } = pane;
  const lane = pane.laneOf(span);
  if (!lane) return;
  const left = Math.max(-5, stage.xOf(stage.data.begins[span]));
  const right = Math.min(stage.width + 5, stage.xOf(stage.data.end(span)));
  if (right < -4 || left > stage.width + 4) return;
  context.strokeStyle = colour;
  context.lineWidth = thickness;
  const top = lane.unit * UNIT - pane.scrollTop;
  context.strokeRect(left - 0.5, top - 0.5, Math.max(2, right - left) + 1, UNIT - GAP + 1);
}

/**
 * Draw an arrow from the end of one span, or the start of the other if that is earlier, to the start of the other.
 */
function drawArrow(context: CanvasRenderingContext2D, pane: Pane, from: number, to: number, palette: Palette): void {
  const { stage } = pane;
  const { data } = stage;
  const [start, finish] = [pane.laneOf(from), pane.laneOf(to)];
  if (!start || !finish) return;
  const begin = data.begins[to];
  const nearby = (x: number) => Math.min(Math.max(x, -FAR_PIXELS), stage.width + FAR_PIXELS);
  const x = nearby(stage.xOf(Math.max(data.begins[from], Math.min(data.end(from), begin))));
  const endX = nearby(stage.xOf(begin));
  const [y, endY] = [start, finish].map((lane) => lane.unit * UNIT + (UNIT - GAP) / 2 - pane.scrollTop);
  if (Math.max(x, endX) < 0 || Math.min(x, endX) > stage.width) return;
  const bend = Math.max(20, Math.min(80, Math.abs(endX - x) / 2));
  for (const [colour, thickness] of [
    [palette.ground, 4],
    [palette.text, 1.5],
  ] as const) {
    context.strokeStyle = colour;
    context.lineWidth = thickness;
    context.beginPath();
    context.moveTo(x, y);
    context.bezierCurveTo(x + bend, y, endX - bend, endY, endX, endY);
    context.stroke();
  }
  context.fillStyle = palette.text;
  context.beginPath();
  context.moveTo(endX, endY);
  context.lineTo(endX - 7, endY - 4);
  context.lineTo(endX - 7, endY + 4);
  context.fill();
}
