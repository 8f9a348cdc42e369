import { formatDuration } from "../format";
import type { StepRow } from "../page_data";
import type { Palette } from "./palette";
import { formatMoment, ticksOf } from "./ruler";
import type { Stage } from "./stage";

export const RULER_HEIGHT = 40;
const HALF = RULER_HEIGHT / 2;
const TICK_PIXELS = 120;
const FONT = "11px system-ui, sans-serif";

/** Draws the axis of time, and the steps with their numbers below it. */
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
  for (const { time, label } of ticksOf(stage.view, TICK_PIXELS * stage.nsPerPixel)) {
    const x = Math.round(stage.xOf(time));
    context.fillStyle = palette.line;
    context.fillRect(x, 0, 1, HALF);
    context.fillStyle = palette.quiet;
    if (x + 4 + context.measureText(label).width <= stage.width) context.fillText(label, x + 4, HALF / 2 + 1);
  }
}

function drawSteps(context: CanvasRenderingContext2D, stage: Stage, palette: Palette): void {
  const { from, to } = stage.view;
  let free = -Infinity;
  for (const step of stage.steps) {
    if (step.begin_ns + step.duration_ns < from || step.begin_ns > to) continue;
    free = drawStep(context, stage, step, free, palette);
  }
}

/** A step's box, and its number where there is room; returns where room is left. */
function drawStep(
  context: CanvasRenderingContext2D,
  stage: Stage,
  step: StepRow,
  free: number,
  palette: Palette,
): number {
  const left = stage.xOf(step.begin_ns);
  const right = stage.xOf(step.begin_ns + step.duration_ns);
  context.fillStyle = palette.panel;
  context.fillRect(left, HALF, right - left, HALF - 2);
  context.fillStyle = palette.quiet;
  context.fillRect(left, HALF, 1, HALF - 2);
  const number = String(step.step);
  const text = right - left > 170 ? `Step ${number}, ${formatDuration(step.duration_ns)}` : number;
  const x = Math.max(left, 0) + 4;
  const width = context.measureText(text).width;
  if (x < free || x + width > Math.max(right, left + 30)) return free;
  context.fillStyle = palette.text;
  context.fillText(text, x, HALF + HALF / 2 - 1);
  return x + width + 6;
}

function drawRange(context: CanvasRenderingContext2D, stage: Stage, palette: Palette): void {
  const { from, to } = stage.range!;
  const [left, right] = [stage.xOf(from), stage.xOf(to)];
  context.fillStyle = palette.accent;
  context.fillRect(left, HALF - 3, right - left, 3);
  writeBoxed(context, stage, formatDuration(to - from), (left + right) / 2, palette);
}

function drawMoment(context: CanvasRenderingContext2D, stage: Stage, palette: Palette): void {
  const { x, time } = stage.hover!;
  writeBoxed(context, stage, formatMoment(time, stage.view), x, palette);
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
