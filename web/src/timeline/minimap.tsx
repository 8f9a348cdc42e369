/** Overview of all recorded time: the visible range is marked, and can be moved and resized. */
import { useEffect, useRef } from "preact/hooks";
import { formatDuration } from "../format";
import { useTheme } from "../theme";
import { readPalette, type Palette } from "./palette";
import { formatMoment } from "./ruler";
import { useStage, type Stage } from "./stage";
import { fillStrip } from "./pixel_row";
import type { View } from "./view";

const HEIGHT = 30;
const MAX_ROWS = 24;
const EDGE_PIXELS = 6;
const MOVES: Record<string, number> = { ArrowLeft: -0.1, ArrowRight: 0.1, PageUp: -0.9, PageDown: 0.9 };

export function Minimap({ stage }: { stage: Stage }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  useEffect(() => drawAfterChanges(canvas.current!, stage), [stage, theme]);
  useEffect(() => followDrags(canvas.current!, stage), [stage]);
  const valueText = useStage(stage, formatView);
  const percent = useStage(stage, ({ view, whole }) => (100 * (view.from - whole.from)) / (whole.to - whole.from));
  const onKeyDown = (event: KeyboardEvent) => {
    const { view } = stage;
    const length = view.to - view.from;
    if (event.key === "Home") stage.show({ from: stage.whole.from, to: stage.whole.from + length });
    else if (event.key === "End") stage.show({ from: stage.whole.to - length, to: stage.whole.to });
    else if (MOVES[event.key]) stage.show(moved(view, MOVES[event.key] * length));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="timeline-minimap">
      <span class="timeline-corner quiet">Whole recording</span>
      <canvas
        ref={canvas}
        role="slider"
        tabIndex={0}
        aria-label="Visible part of the recording"
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(percent)}
        aria-valuetext={valueText}
        onKeyDown={onKeyDown}
      />
    </div>
  );
}

function moved({ from, to }: View, by: number): View {
  return { from: from + by, to: to + by };
}

function formatView({ view, fold }: Stage): string {
  const [from, to] = [fold.real(view.from), fold.real(view.to)];
  return `${formatDuration(to - from)} from ${formatMoment(from, { from, to })}`;
}

/** The spans are drawn once per size and theme; the visible range is drawn over them after each change. */
function drawAfterChanges(canvas: HTMLCanvasElement, stage: Stage): () => void {
  const palette = readPalette(stage.data);
  let picture: HTMLCanvasElement | null = null;
  let frame = 0;
  const draw = () => {
    frame = 0;
    const width = canvas.parentElement!.clientWidth - canvas.offsetLeft;
    if (width < 1) return;
    const columns = Math.round(width * devicePixelRatio);
    if (picture?.width !== columns) picture = drawPicture(stage, palette, columns);
    canvas.width = columns;
    canvas.height = Math.round(HEIGHT * devicePixelRatio);
    const context = canvas.getContext("2d")!;
    context.scale(devicePixelRatio, devicePixelRatio);
    context.imageSmoothingEnabled = false;
    context.fillStyle = palette.ground;
    context.fillRect(0, 0, width, HEIGHT);
    context.drawImage(picture, 0, 2, width, HEIGHT - 4);
    drawView(context, stage, palette, width);
  };
  const ask = () => {
    frame ||= requestAnimationFrame(draw);
  };
  const observer = new ResizeObserver(ask);
  observer.observe(canvas.parentElement!);
  const stop = stage.listen(ask);
  return () => {
    stop();
    observer.disconnect();
    cancelAnimationFrame(frame);
  };
}

/** A line of pixels per track for its outermost spans; every n-th track if there are many. */
function drawPicture(stage: Stage, palette: Palette, columns: number): HTMLCanvasElement {
  const { data } = stage;
  const rows = data.rowsOfTrack.flatMap((rows) => rows.slice(0, 3)).map((at) => data.rows[at]);
  const every = Math.max(1, rows.length / MAX_ROWS);
  const chosen = Array.from({ length: Math.ceil(rows.length / every) }, (_, at) => rows[Math.floor(at * every)]);
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [columns, Math.max(1, chosen.length)];
  const image = new ImageData(columns, picture.height);
  const pixels = new Uint32Array(image.data.buffer);
  chosen.forEach((row, at) => {
    fillStrip(pixels.subarray(at * columns, (at + 1) * columns), data, row, stage.whole, palette);
  });
  picture.getContext("2d")!.putImageData(image, 0, 0);
  return picture;
}

function drawView(context: CanvasRenderingContext2D, stage: Stage, palette: Palette, width: number): void {
  const [left, right] = [stage.view.from, stage.view.to].map((time) => toPixel(stage, time, width));
  context.globalAlpha = 0.65;
  context.fillStyle = palette.ground;
  context.fillRect(0, 0, left, HEIGHT);
  context.fillRect(right, 0, width - right, HEIGHT);
  context.globalAlpha = 1;
  context.strokeStyle = palette.accent;
  context.lineWidth = 2;
  context.strokeRect(left + 1, 1, Math.max(3, right - left - 2), HEIGHT - 2);
}

function toPixel({ whole }: Stage, time: number, width: number): number {
  return ((time - whole.from) / (whole.to - whole.from)) * width;
}

type Grip = "from" | "to" | "whole";

/** A drag of an edge of the visible range moves that edge; elsewhere it centres the range. */
function followDrags(canvas: HTMLCanvasElement, stage: Stage): () => void {
  let grip: Grip | null = null;
  const stop = new AbortController();
  const timeAt = (x: number) => stage.whole.from + (x / canvas.clientWidth) * (stage.whole.to - stage.whole.from);
  const drag = (x: number) => {
    const { from, to } = stage.view;
    const time = timeAt(x);
    if (grip === "from" && time < to) stage.show({ from: time, to });
    else if (grip === "to" && time > from) stage.show({ from, to: time });
    else if (grip === "whole") stage.show({ from: time - (to - from) / 2, to: time + (to - from) / 2 });
  };
  const on = (
    kind: "pointerdown" | "pointermove" | "pointerup" | "pointercancel",
    deed: (event: PointerEvent) => void,
  ) => canvas.addEventListener(kind, deed, { signal: stop.signal });
  on("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    grip = gripAt(stage, event.offsetX, canvas.clientWidth);
    drag(event.offsetX);
  });
  on("pointermove", (event) => {
    canvas.style.cursor = gripAt(stage, event.offsetX, canvas.clientWidth) === "whole" ? "grab" : "ew-resize";
    drag(event.offsetX);
  });
  on("pointerup", () => (grip = null));
  on("pointercancel", () => (grip = null));
  return () => stop.abort();
}

function gripAt(stage: Stage, x: number, width: number): Grip {
  const [left, right] = [stage.view.from, stage.view.to].map((time) => toPixel(stage, time, width));
  if (Math.abs(x - left) <= EDGE_PIXELS && right - left > 3 * EDGE_PIXELS) return "from";
  return Math.abs(x - right) <= EDGE_PIXELS && right - left > 3 * EDGE_PIXELS ? "to" : "whole";
}
