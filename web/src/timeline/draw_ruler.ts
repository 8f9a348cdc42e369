import { formatDuration } from "../format";
import type { StepRow } from "../page_data";
import { timeTicks } from "../parts/axis";
import type { Gap } from "./fold";
import type { Palette } from "./palette";
import { formatMoment, formatSteps } from "./ruler";
import type { Stage } from "./stage";
import type { View } from "./view";

export const RULER_HEIGHT = 40;
const HALF = RULER_HEIGHT / 2;
const TICK_PIXELS = 120;
const FONT = "11px system-ui, sans-serif";

/** Draw the time axis, and the steps with their numbers. */
export function drawRuler(context: CanvasRenderingContext2D, stage: Stage, palette: Palette): void {
  const ratio = context.canvas.width / stage.width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.ground;
  context.fillRect(0, 0, stage.width, RULER_HEIGHT);
  context.font = FONT;
  context.textBaseline = "middle";
  drawTicks(context, stage, palette);
  drawSteps(context, stage, palette);
  if (stage.range) drawRange(context, stage, palette);
  else if (stage.hover) drawMoment(context, stage, palette);
}

function drawTicks(context: CanvasRenderingContext2D, stage: Stage, palette: Palette): void {
  const { from, to } = stage.view;
  const segments = stage.fold.segments(from, to);
  const all = segments.flatMap((segment) => {
    const ticks = timeTicks(segment.from + segment.later, segment.to + segment.later, TICK_PIXELS * stage.nsPerPixel);
    return ticks.map(({ value, label }) => ({ x: Math.round(stage.xOf(value - segment.later)), label }));
  });
  let free = -Infinity;
  for (const { x, label } of all) {
    const width = context.measureText(label).width;
    context.fillStyle = palette.line;
    context.fillRect(x, 0, 1, HALF);
    context.fillStyle = palette.quiet;
    if (x < free || x + 4 + width > stage.width) continue;
    context.fillText(label, x + 4, HALF / 2 + 1);
    free = x + width + 8;
  }
  for (const gap of stage.fold.gaps) drawGap(context, stage, gap, palette);
}

/** Draw a gap between windows, with its length if it fits. */
function drawGap(context: CanvasRenderingContext2D, stage: Stage, gap: Gap, palette: Palette): void {
  const [left, right] = [stage.xOf(gap.from), stage.xOf(gap.to)];
  if (right < 0 || left > stage.width) return;
  context.fillStyle = palette.panel;
  context.fillRect(left, 0, right - left, RULER_HEIGHT);
  context.fillStyle = palette.quiet;
  for (const text of [`${formatDuration(gap.lengthNs)} not recorded`, formatDuration(gap.lengthNs), "…"]) {
    const width = context.measureText(text).width;
    if (width + 4 > right - left) continue;
    context.fillText(text, (left + right - width) / 2, HALF / 2 + 1);
    return;
  }
}

/** Boxes before numbers: a number may extend into later boxes. */
function drawSteps(context: CanvasRenderingContext2D, stage: Stage, palette: Palette): void {
  const { from, to } = stage.view;
  const steps = stage.steps.filter((step) => step.begin_ns + step.duration_ns >= from && step.begin_ns <= to);
  for (const step of steps) drawStep(context, stage, step, palette);
  let free = -Infinity;
  for (const step of steps) free = drawNumber(context, stage, step, free, palette);
}

function drawStep(context: CanvasRenderingContext2D, stage: Stage, step: StepRow, palette: Palette): void {
  const left = stage.xOf(step.begin_ns);
  context.fillStyle = palette.panel;
  context.fillRect(left, HALF, stage.xOf(step.begin_ns + step.duration_ns) - left, HALF - 2);
  context.fillStyle = palette.quiet;
  context.fillRect(left, HALF, 1, HALF - 2);
}

/** Draw the number of a step if it fits; returns where free space starts. */
function drawNumber(
  context: CanvasRenderingContext2D,
  stage: Stage,
  step: StepRow,
  free: number,
  palette: Palette,
): number {
  const left = stage.xOf(step.begin_ns);
  const right = stage.xOf(step.begin_ns + step.duration_ns);
  const number = String(step.step);
  const text = right - left > 170 ? `Step ${number}, ${formatDuration(step.duration_ns)}` : number;
  const x = Math.max(left, 0) + 4;
  const width = context.measureText(text).width;
  if (x < free || x + width > Math.min(Math.max(right, left + 30), stage.width)) return free;
  context.fillStyle = palette.panel;
  context.fillRect(x - 3, HALF, width + 6, HALF - 2);
  context.fillStyle = palette.text;
  context.fillText(text, x, HALF + HALF / 2 - 1);
  return x + width + 6;
}

function drawRange(context: CanvasRenderingContext2D, stage: Stage, palette: Palette): void {
  const { from, to } = stage.range!;
  const [left, right] = [stage.xOf(from), stage.xOf(to)];
  context.fillStyle = palette.accent;
  context.fillRect(left, HALF - 3, right - left, 3);
  writeBoxed(context, stage, formatDuration(stage.fold.lengthOf(from, to)), (left + right) / 2, palette);
}

function drawMoment(context: CanvasRenderingContext2D, stage: Stage, palette: Palette): void {
  const { x, time } = stage.hover!;
  const step = stage.steps.length ? `, ${formatSteps(stage.steps, { from: time, to: time }).toLowerCase()}` : "";
  writeBoxed(context, stage, `${formatMoment(stage.fold.real(time), realView(stage))}${step}`, x, palette);
}

/** The visible range as times. */
function realView({ view, fold }: Stage): View {
  return { from: fold.real(view.from), to: fold.real(view.to) };
}

function writeBoxed(
  context: CanvasRenderingContext2D,
  stage: Stage,
  text: string,
  middle: number,
  palette: Palette,
): void {
  const width = context.measureText(text).width + 10;
  const left = Math.min(Math.max(middle - width / 2, 0), stage.width - width);
  context.fillStyle = palette.accent;
  context.fillRect(left, 1, width, HALF - 3);
  context.fillStyle = palette.ground;
  context.fillText(text, left + 5, HALF / 2);
}
