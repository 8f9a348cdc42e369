import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatCount, formatDuration, formatShare } from "../format";
import { Name } from "../parts/name";
import { useWidth } from "../parts/use_width";
import { useTheme } from "../theme";
import { drawBoxes, LEVEL_PX } from "./draw";
import type { Box, Frames } from "./frames";

const MAX_LEVELS = 600; // browsers limit the height of a canvas

interface FrameCanvasProps {
  frames: Frames;
  top: number;
  isFound: Uint8Array | null;
  onZoom: (frame: number) => void;
  /** Draw callees above their caller. */
  isUp?: boolean;
  /** Draw a frame below the frames that it called, as for callers of a function. */
  areCallers?: boolean;
  /** Show the callers and callees of a function. */
  onSandwich?: (name: string) => void;
}

interface Hover {
  box: Box;
  x: number;
  y: number;
}

/** The flame graph on a canvas. A click or Enter makes a frame as wide as the picture. */
export function FrameCanvas(props: FrameCanvasProps) {
  const { frames, top, isFound, onZoom, isUp = false, areCallers = false, onSandwich } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const width = useWidth(scroller);
  const theme = useTheme();
  const [selected, setSelected] = useState(top);
  const [hover, setHover] = useState<Hover | null>(null);
  const { boxes, height } = useMemo(
    () => layOut(frames.boxes(top, width, MAX_LEVELS), isUp),
    [frames, top, width, isUp],
  );
  useLayoutEffect(() => setSelected(top), [top]); // before the next key press
  useLayoutEffect(() => {
    if (canvas.current && width) drawBoxes(canvas.current, { frames, boxes, isFound, selected }, width, height);
  }, [boxes, isFound, selected, theme]);
  useLayoutEffect(() => {
    if (scroller.current && isUp) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [height, isUp]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = (isUp && UPSIDE_DOWN[event.key]) || event.key;
    const zoomed = zoomByKey(frames, top, selected, key);
    const next = selectedByKey(frames, selected, key);
    if (zoomed === null && next === null) return;
    event.preventDefault();
    if (zoomed !== null) onZoom(zoomed);
    else if (next !== null && isBelow(frames, next, top)) setSelected(next);
  };
  return (
    <div class="flame-box">
      <p class="flame-facts" aria-live="polite">
        <Facts frames={frames} frame={selected} top={top} areCallers={areCallers} />
        {onSandwich && selected !== frames.root && (
          <button type="button" onClick={() => onSandwich(frames.nameOf(selected))}>
            Callers and callees
          </button>
        )}
      </p>
      <div class="flame-scroll" ref={scroller}>
        <canvas
          ref={canvas}
          tabIndex={0}
          // eslint-disable-next-line jsx-a11y/no-interactive-element-to-noninteractive-role -- it has keys of its own
          role="application"
          aria-label={`${LABELS[Number(areCallers)]}. Arrow keys go to callers, callees and their neighbours, Enter zooms, Escape zooms out.`}
          onKeyDown={onKeyDown}
          onPointerMove={(event) => setHover(hoverAt(boxes, event))}
          onPointerLeave={() => setHover(null)}
          onClick={(event) => {
            const found = hoverAt(boxes, event);
            if (found) onZoom(found.box.frame);
          }}
        />
      </div>
      {hover && <Tip frames={frames} hover={hover} top={top} areCallers={areCallers} />}
    </div>
  );
}

const LABELS = ["Flame graph", "Callers"];
const UPSIDE_DOWN: Record<string, string> = { ArrowUp: "ArrowDown", ArrowDown: "ArrowUp" };

/** The boxes with their vertical positions, and the total height; upwards, the first one is at the bottom. */
function layOut(boxes: Box[], isUp: boolean): { boxes: Box[]; height: number } {
  const most = boxes.reduce((most, box) => Math.max(most, box.level), 0);
  const drawn = isUp ? boxes.map((box) => ({ ...box, level: most - box.level })) : boxes;
  return { boxes: drawn, height: (1 + most) * LEVEL_PX };
}

function hoverAt(boxes: Box[], event: MouseEvent): Hover | null {
  const level = Math.floor(event.offsetY / LEVEL_PX);
  const box = boxes.find(
    (box) => box.level === level && event.offsetX >= box.x && event.offsetX < box.x + Math.max(1, box.width),
  );
  return box ? { box, x: event.clientX, y: event.clientY } : null;
}

/** The frame that a key press zooms to. */
function zoomByKey(frames: Frames, top: number, selected: number, key: string): number | null {
  if (key === "Enter" || key === " ") return selected;
  if (key === "Home") return frames.root;
  if (key === "Escape" || (key === "ArrowUp" && selected === top))
    return top === frames.root ? top : frames.callers[top];
  return null;
}

function selectedByKey(frames: Frames, selected: number, key: string): number | null {
  if (key === "ArrowDown") return frames.calleesOf(selected)[0] ?? selected;
  if (key === "ArrowUp") return frames.callers[selected];
  if (key !== "ArrowLeft" && key !== "ArrowRight") return null;
  if (selected === frames.root) return selected;
  const siblings = frames.calleesOf(frames.callers[selected]);
  const next = siblings.indexOf(selected) + (key === "ArrowLeft" ? -1 : 1);
  return siblings[Math.max(0, Math.min(next, siblings.length - 1))];
}

function isBelow(frames: Frames, frame: number, top: number): boolean {
  for (let at = frame; at >= 0; at = frames.callers[at]) if (at === top) return true;
  return false;
}

interface FactsProps {
  frames: Frames;
  frame: number;
  top: number;
  areCallers: boolean;
}

function Facts({ frames, frame, top, areCallers }: FactsProps) {
  const share = frames.total[frame] / frames.total[top];
  const ofAll = frames.total[frame] / frames.total[frames.root];
  return (
    <>
      <strong>
        <Name text={frames.nameOf(frame)} />
      </strong>
      <span>
        {areCallers && frame !== frames.root
          ? `${formatDuration(frames.total[frame])} in calls from here`
          : `${formatDuration(frames.total[frame])}, self ${formatDuration(frames.self_ns[frame])}`}
      </span>
      <span>
        {top === frames.root ? formatShare(share) : `${formatShare(share)} of the view, ${formatShare(ofAll)} of all`}
      </span>
      {frames.calls[frame] > 0 && <span>{`${formatCount(frames.calls[frame])} calls`}</span>}
    </>
  );
}

function Tip({ hover, ...facts }: Omit<FactsProps, "frame"> & { hover: Hover }) {
  const isRight = hover.x > window.innerWidth / 2;
  const side = isRight ? { right: `${window.innerWidth - hover.x + 12}px` } : { left: `${hover.x + 12}px` };
  return (
    <div class="tip" style={{ ...side, top: `${hover.y + 16}px` }} aria-hidden="true">
      <Facts {...facts} frame={hover.box.frame} />
    </div>
  );
}
