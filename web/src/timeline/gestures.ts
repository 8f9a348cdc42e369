import type { Stage } from "./stage";

const CLICK_PIXELS = 4;
const ZOOM_PER_PIXEL = 1.0015;
const ZOOM_STEP = 0.7;
const PAN_SHARE = 0.15;
const PIXELS_PER_LINE = 20;

interface Drag {
  x: number;
  y: number;
  from: number;
  to: number;
  scrollTop: number;
  isMeasuring: boolean;
  hasMoved: boolean;
}

/** Lets the pointer move what the canvas shows: a wheel zooms, a drag moves or measures, a click selects. On the ruler
 * (`isRuler`) a drag measures all tracks. Returns what stops that. */
export function followPointer(canvas: HTMLCanvasElement, stage: Stage, isRuler = false): () => void {
  let drag: Drag | null = null;
  const stop = new AbortController();
  const on = <Kind extends keyof HTMLElementEventMap>(
    kind: Kind,
    listener: (event: HTMLElementEventMap[Kind]) => void,
  ) => canvas.addEventListener(kind, listener, { signal: stop.signal, passive: false });

  on("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = beginDrag(event, stage, isRuler);
  });
  on("pointermove", (event) => {
    if (drag) continueDrag(event, stage, drag, isRuler);
    else hover(event, stage, isRuler);
  });
  on("pointerup", (event) => {
    if (drag && !drag.hasMoved) click(event, stage, isRuler);
    drag = null;
  });
  on("pointercancel", () => (drag = null));
  on("pointerleave", () => stage.hover && stage.change({ hover: null }));
  on("wheel", (event) => {
    event.preventDefault();
    turnWheel(event, stage);
  });
  return () => stop.abort();
}

function beginDrag(event: PointerEvent, stage: Stage, isRuler: boolean): Drag {
  const { from, to } = stage.view;
  const isMeasuring = isRuler || event.shiftKey || stage.isMeasuring;
  const { scrollTop } = stage;
  return { x: event.offsetX, y: event.offsetY, from, to, scrollTop, isMeasuring, hasMoved: false };
}

function continueDrag(event: PointerEvent, stage: Stage, drag: Drag, isRuler: boolean): void {
  const [right, down] = [event.offsetX - drag.x, event.offsetY - drag.y];
  drag.hasMoved ||= Math.hypot(right, down) >= CLICK_PIXELS;
  if (!drag.hasMoved) return;
  if (drag.isMeasuring) {
    measure(event, stage, drag, isRuler);
    return;
  }
  const by = (-right * (drag.to - drag.from)) / stage.width;
  stage.show({ from: drag.from + by, to: drag.to + by });
  stage.scrollTo(drag.scrollTop - down);
}

function measure(event: PointerEvent, stage: Stage, drag: Drag, isRuler: boolean): void {
  const times = [drag.x, event.offsetX].map((x) => stage.timeAt(Math.min(Math.max(x, 0), stage.width)));
  const rows = isRuler ? null : stage.rowsBetween(drag.y, event.offsetY);
  stage.change({ range: { from: Math.min(...times), to: Math.max(...times), rows }, panel: "range", hover: null });
}

function click(event: PointerEvent, stage: Stage, isRuler: boolean): void {
  if (isRuler || stage.isMeasuring) stage.clearRange();
  else stage.select(stage.spanAt(event.offsetX, event.offsetY));
}

function hover(event: PointerEvent, stage: Stage, isRuler: boolean): void {
  const { offsetX: x, offsetY: y } = event;
  const span = isRuler ? null : stage.spanAt(x, y);
  stage.change({ hover: { x, y, time: stage.timeAt(x), span } });
}

/** Up and down zooms at the cursor, or scrolls the tracks with Alt; left and right, or with Shift, moves. */
function turnWheel(event: WheelEvent, stage: Stage): void {
  const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? PIXELS_PER_LINE : 1;
  const [right, down] = [event.deltaX * scale, event.deltaY * scale];
  if (event.altKey) stage.scrollTo(stage.scrollTop + down);
  else if (event.shiftKey || Math.abs(right) > Math.abs(down)) stage.pan(right || down);
  else stage.zoom(ZOOM_PER_PIXEL ** down, event.offsetX);
}

/** What keys do, as the reader is told. */
export const TIMELINE_KEYS: [keys: string[], deed: string][] = [
  [["W", "S", "+", "-"], "zoom in and out"],
  [["A", "D", "←", "→"], "earlier and later"],
  [["↑", "↓"], "scroll the tracks"],
  [["Home"], "show all"],
  [["F"], "show the selected span"],
  [["/"], "search"],
  [["Enter", "N"], "next match; with Shift the one before"],
  [["Shift ←", "Shift →"], "select the span before, after"],
  [["Shift ↑", "Shift ↓"], "select the span around, the first one in it"],
  [["M"], "measure by dragging, as Shift and a drag do"],
  [["T"], "show as table"],
  [["Escape"], "close, clear what is selected"],
];

type KeyDeed = (stage: Stage) => void;

const DEEDS: Record<string, KeyDeed> = {
  w: (stage) => stage.zoom(ZOOM_STEP, stage.hover?.x),
  "+": (stage) => stage.zoom(ZOOM_STEP, stage.hover?.x),
  "=": (stage) => stage.zoom(ZOOM_STEP, stage.hover?.x),
  s: (stage) => stage.zoom(1 / ZOOM_STEP, stage.hover?.x),
  "-": (stage) => stage.zoom(1 / ZOOM_STEP, stage.hover?.x),
  a: (stage) => stage.pan(-PAN_SHARE * stage.width),
  d: (stage) => stage.pan(PAN_SHARE * stage.width),
  ArrowLeft: (stage) => stage.pan(-PAN_SHARE * stage.width),
  ArrowRight: (stage) => stage.pan(PAN_SHARE * stage.width),
  ArrowUp: (stage) => stage.scrollTo(stage.scrollTop - 3 * PIXELS_PER_LINE),
  ArrowDown: (stage) => stage.scrollTo(stage.scrollTop + 3 * PIXELS_PER_LINE),
  "Shift+ArrowLeft": (stage) => stage.selectNear("before"),
  "Shift+ArrowRight": (stage) => stage.selectNear("after"),
  "Shift+ArrowUp": (stage) => stage.selectNear("around"),
  "Shift+ArrowDown": (stage) => stage.selectNear("inside"),
  Home: (stage) => stage.show(stage.whole),
  f: (stage) => stage.selected !== null && stage.reveal(stage.selected),
  n: (stage) => stage.goToMatch(true),
  N: (stage) => stage.goToMatch(false),
  Enter: (stage) => stage.goToMatch(true),
  "Shift+Enter": (stage) => stage.goToMatch(false),
  m: (stage) => stage.change({ isMeasuring: !stage.isMeasuring }),
  t: (stage) => stage.togglePanel("table"),
  Escape: (stage) => stage.escape(),
};

/** Lets keys move the timeline, wherever in its view the focus is, but for what is typed. Returns what stops that. */
export function followKeys(stage: Stage, focusSearch: () => void): () => void {
  const stop = new AbortController();
  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isForOthers(event)) return;
    const isShifted = event.shiftKey && event.key.length > 1;
    const deed = event.key === "/" ? focusSearch : DEEDS[isShifted ? `Shift+${event.key}` : event.key];
    if (!deed) return;
    event.preventDefault();
    deed(stage);
  };
  addEventListener("keydown", press, { signal: stop.signal });
  return () => stop.abort();
}

/** Keys that the focused part of the page needs itself. */
function isForOthers({ key, target }: KeyboardEvent): boolean {
  const focused = target as Element | null;
  if (!focused?.closest) return false;
  if (key === "Escape") return focused.closest("dialog[open]") !== null;
  if (focused.closest("input, select, textarea, dialog[open]")) return true;
  if (key === "Enter") return focused.closest("button, a") !== null;
  return (key.startsWith("Arrow") || key === "Home") && focused.closest(".timeline-panel") !== null;
}
