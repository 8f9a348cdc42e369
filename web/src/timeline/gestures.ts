import type { Pane, Stage } from "./stage";

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
  isMoving: boolean;
  hasMoved: boolean;
}

/**
 * Pointer gestures on a canvas: the wheel zooms, a drag measures an area or moves, a click selects. On the ruler,
 * which has no `pane`, a drag measures all tracks. Returns a function that removes the listeners.
 */
export function followPointer(canvas: HTMLCanvasElement, stage: Stage, pane: Pane | null): () => void {
  let drag: Drag | null = null;
  const stop = new AbortController();
  const on = <Kind extends keyof HTMLElementEventMap>(
    kind: Kind,
    listener: (event: HTMLElementEventMap[Kind]) => void,
  ) => canvas.addEventListener(kind, listener, { signal: stop.signal, passive: false });

  on("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = beginDrag(event, stage, pane);
  });
  on("pointermove", (event) => {
    if (drag) continueDrag(event, stage, drag, pane);
    else hover(event, stage, pane);
  });
  on("pointerup", (event) => {
    if (drag && !drag.hasMoved) click(event, stage, pane);
    else if (stage.range?.isMoving) stage.change({ range: { ...stage.range, isMoving: false } });
    drag = null;
  });
  on("pointercancel", () => (drag = null));
  on("pointerleave", () => stage.hover && stage.change({ hover: null }));
  on("wheel", (event) => {
    event.preventDefault();
    turnWheel(event, stage, pane ?? stage.main);
  });
  return () => stop.abort();
}

/** A finger moves the view; a mouse does so with Shift, or in that mode. */
function beginDrag(event: PointerEvent, stage: Stage, pane: Pane | null): Drag {
  const { from, to } = stage.view;
  const isMoving = pane !== null && (event.pointerType === "touch" || event.shiftKey !== stage.isMoving);
  return { x: event.offsetX, y: event.offsetY, from, to, scrollTop: pane?.scrollTop ?? 0, isMoving, hasMoved: false };
}

function continueDrag(event: PointerEvent, stage: Stage, drag: Drag, pane: Pane | null): void {
  const [right, down] = [event.offsetX - drag.x, event.offsetY - drag.y];
  drag.hasMoved ||= Math.hypot(right, down) >= CLICK_PIXELS;
  if (!drag.hasMoved) return;
  if (!drag.isMoving) {
    measure(event, stage, drag, pane);
    return;
  }
  const by = (-right * (drag.to - drag.from)) / stage.width;
  stage.show({ from: drag.from + by, to: drag.to + by });
  pane?.scrollTo(drag.scrollTop - down);
}

function measure(event: PointerEvent, stage: Stage, drag: Drag, pane: Pane | null): void {
  const times = [drag.x, event.offsetX].map((x) => stage.timeAt(Math.min(Math.max(x, 0), stage.width)));
  const dragged = pane?.rowsBetween(drag.y, event.offsetY) ?? [];
  const rows = dragged.length ? dragged : null;
  const range = { from: Math.min(...times), to: Math.max(...times), rows, isMoving: true };
  stage.change({ range, panel: "range", hover: null });
}

function click(event: PointerEvent, stage: Stage, pane: Pane | null): void {
  if (stage.range) stage.clearRange();
  if (pane) stage.select(pane.spanAt(event.offsetX, event.offsetY));
}

function hover(event: PointerEvent, stage: Stage, pane: Pane | null): void {
  const { offsetX: x, offsetY: y } = event;
  stage.change({ hover: { pane, x, y, time: stage.timeAt(x), span: pane?.spanAt(x, y) ?? null } });
}

/** The wheel zooms at the cursor, or scrolls the tracks with Alt; sideways, or with Shift, it moves. */
function turnWheel(event: WheelEvent, stage: Stage, pane: Pane): void {
  const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? PIXELS_PER_LINE : 1;
  const [right, down] = [event.deltaX * scale, event.deltaY * scale];
  if (event.altKey) pane.scrollTo(pane.scrollTop + down);
  else if (event.shiftKey || Math.abs(right) > Math.abs(down)) stage.pan(right || down);
  else stage.zoom(ZOOM_PER_PIXEL ** down, event.offsetX);
}

/** The keys for the help. */
export const TIMELINE_KEYS: [keys: string[], deed: string][] = [
  [["W", "S", "+", "-"], "zoom in and out"],
  [["A", "D", "←", "→"], "earlier and later"],
  [["↑", "↓"], "scroll the tracks"],
  [["Home"], "show all"],
  [["F"], "show the selected span"],
  [["/"], "search"],
  [["Enter", "N"], "next match; with Shift the previous one"],
  [["Shift ←", "Shift →"], "select the previous or next span"],
  [["Shift ↑", "Shift ↓"], "select the parent or first child span"],
  [["M"], "switch dragging from measuring to moving; Shift does so for one drag"],
  [["P"], "pin the selected span's track above the others, or unpin it"],
  [["T"], "show as table"],
  [["Escape"], "close the panel, clear the selection"],
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
  ArrowUp: (stage) => stage.main.scrollTo(stage.main.scrollTop - 3 * PIXELS_PER_LINE),
  ArrowDown: (stage) => stage.main.scrollTo(stage.main.scrollTop + 3 * PIXELS_PER_LINE),
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
  m: (stage) => stage.change({ isMoving: !stage.isMoving }),
  p: (stage) => stage.selected !== null && stage.togglePin(stage.data.rows[stage.data.rowOf(stage.selected)].track),
  t: (stage) => stage.togglePanel("table"),
  Escape: (stage) => stage.escape(),
};

/**
 * Keys of the timeline, wherever the focus is except in text fields. Returns a function that removes the listener.
 */
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

/** Keys that the focused element handles. */
function isForOthers({ key, target }: KeyboardEvent): boolean {
  const focused = target as Element | null;
  if (!focused?.closest) return false;
  if (key === "Escape") return focused.closest("dialog[open]") !== null;
  if (focused.closest("input, select, textarea, dialog[open]")) return true;
  if (key === "Enter") return focused.closest("button, a") !== null;
  return (key.startsWith("Arrow") || key === "Home") && focused.closest(".timeline-panel, .timeline-minimap") !== null;
}
