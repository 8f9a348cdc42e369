import { canvasColour, type ColourNumber } from "../colours";
import { kindOf, shortName, type Box, type Frames, type Kind } from "./frames";

export const LEVEL_PX = 19;
const MIN_LABELLED_PX = 26;
const FILL_ALPHA = 0.5;
const UNFOUND_ALPHA = 0.2;

export const KIND_COLOURS: Record<Kind, ColourNumber> = {
  "your code": 2,
  "library Python": 8,
  modules: 5,
  operators: 1,
  backward: 3,
  "CUDA calls": 6,
  "markers, other": 4,
};

export interface Picture {
  frames: Frames;
  boxes: Box[];
  isFound: Uint8Array | null;
  selected: number;
}

/** Draw all boxes; those that do not match the search are pale. */
export function drawBoxes(canvas: HTMLCanvasElement, picture: Picture, width: number, height: number): void {
  const context = prepared(canvas, width, height);
  const text = canvasColour("text");
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.direction = "ltr";
  fillBoxes(context, picture);
  context.fillStyle = text;
  for (const box of picture.boxes) if (box.width >= MIN_LABELLED_PX) writeLabel(context, picture.frames, box);
  context.strokeStyle = text;
  context.lineWidth = 2;
  const selected = picture.boxes.find((box) => box.frame === picture.selected);
  if (selected) context.strokeRect(selected.x + 1, selected.level * LEVEL_PX + 1, selected.width - 2, LEVEL_PX - 3);
}

/** Clear the canvas and fit it to its pixels on the screen. */
function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.scale(scale, scale);
  return context;
}

function fillBoxes(context: CanvasRenderingContext2D, { frames, boxes, isFound }: Picture): void {
  const colours = new Map<Kind, string>();
  const found = canvasColour("accent");
  for (const { frame, level, x, width } of boxes) {
    const kind = frame === frames.root ? "library Python" : kindOf(frames.nameOf(frame));
    if (!colours.has(kind)) colours.set(kind, canvasColour(`colour-${KIND_COLOURS[kind]}`));
    context.fillStyle = isFound?.[frame] ? found : colours.get(kind)!;
    context.globalAlpha = isFound && !isFound[frame] ? UNFOUND_ALPHA : FILL_ALPHA;
    context.fillRect(x, level * LEVEL_PX, Math.max(1, width - 1), LEVEL_PX - 1);
    context.globalAlpha = 1;
    if (isFound?.[frame]) context.fillRect(x, level * LEVEL_PX + LEVEL_PX - 4, Math.max(1, width - 1), 3);
  }
}

function writeLabel(context: CanvasRenderingContext2D, frames: Frames, { frame, level, x, width }: Box): void {
  const label = fitting(context, shortName(frames.nameOf(frame)), width - 8);
  if (label) context.fillText(label, x + 4, level * LEVEL_PX + LEVEL_PX / 2);
}

/** The longest start of a text that fits. */
function fitting(context: CanvasRenderingContext2D, text: string, width: number): string {
  let length = Math.min(text.length, Math.ceil(width / 4));
  for (; length > 1; length = Math.floor(length * 0.9)) {
    const label = length < text.length ? `${text.slice(0, length)}…` : text;
    if (context.measureText(label).width <= width) return label;
  }
  return "";
}
