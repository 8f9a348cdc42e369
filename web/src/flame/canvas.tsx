import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { formatCount, formatDuration, formatShare } from "../format";
import { Name } from "../parts/name";
import { useTheme } from "../theme";
import { drawBoxes, LEVEL_PX } from "./draw";
import type { Box, Frames } from "./frames";

const MOST_LEVELS = 600; // browsers draw no canvas that is much higher

interface FrameCanvasProps {
  frames: Frames;
  top: number;
  isFound: Uint8Array | null;
  onZoom: (frame: number) => void;
}

interface Hover {
  box: Box;
  x: number;
  y: number;
}

/** The picture: a frame above what it called. A click, or Enter, makes a frame as wide as the picture. */
export function FrameCanvas({ frames, top, isFound, onZoom }: FrameCanvasProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(canvas);
  const theme = useTheme();
  const [selected, setSelected] = useState(top);
  const [hover, setHover] = useState<Hover | null>(null);
  const boxes = useMemo(() => frames.boxes(top, width, MOST_LEVELS), [frames, top, width]);
  const height = (1 + boxes.reduce((most, box) => Math.max(most, box.level), 0)) * LEVEL_PX;
  useEffect(() => setSelected(top), [top]);
  useLayoutEffect(() => {
    if (canvas.current && width) drawBoxes(canvas.current, { frames, boxes, isFound, selected }, width, height);
  }, [boxes, isFound, selected, theme]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const zoomed = zoomByKey(frames, top, selected, event.key);
    const next = selectedByKey(frames, selected, event.key);
    if (zoomed === null && next === null) return;
    event.preventDefault();
    if (zoomed !== null) onZoom(zoomed);
    else if (next !== null && isBelow(frames, next, top)) setSelected(next);
  };
  return (
    <div class="flame-box">
      <p class="flame-facts" aria-live="polite">
        <Facts frames={frames} frame={selected} top={top} />
      </p>
      <div class="flame-scroll">
        <canvas
          ref={canvas}
          tabIndex={0}
          // eslint-disable-next-line jsx-a11y/no-interactive-element-to-noninteractive-role -- it has keys of its own
          role="application"
          aria-label="Flame graph. Arrow keys go to callers, callees and their neighbours, Enter zooms, Escape zooms out."
          onKeyDown={onKeyDown}
          onPointerMove={(event) => setHover(hoverAt(boxes, event))}
          onPointerLeave={() => setHover(null)}
          onClick={(event) => {
            const found = hoverAt(boxes, event);
            if (found) onZoom(found.box.frame);
          }}
        />
      </div>
      {hover && <Tip frames={frames} hover={hover} top={top} />}
      <p class="quiet">
        Click: zoom. Arrows: select. Enter: zoom to the selected frame. Escape: zoom out. Frames narrower than a pixel
        are drawn when you zoom in.
      </p>
    </div>
  );
}

function useWidth(canvas: { current: HTMLCanvasElement | null }): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const box = canvas.current?.parentElement;
    if (!box) return;
    const observer = new ResizeObserver(() => setWidth(Math.floor(box.clientWidth)));
    observer.observe(box);
    setWidth(Math.floor(box.clientWidth));
    return () => observer.disconnect();
  }, []);
  return width;
}

function hoverAt(boxes: Box[], event: MouseEvent): Hover | null {
  const level = Math.floor(event.offsetY / LEVEL_PX);
  const box = boxes.find(
    (box) => box.level === level && event.offsetX >= box.x && event.offsetX < box.x + Math.max(1, box.width),
  );
  return box ? { box, x: event.clientX, y: event.clientY } : null;
}

/** The frame to zoom to, if a key says so. */
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

function Facts({ frames, frame, top }: { frames: Frames; frame: number; top: number }) {
  const share = frames.total[frame] / frames.total[top];
  const ofAll = frames.total[frame] / frames.total[frames.root];
  return (
    <>
      <strong>
        <Name text={frames.nameOf(frame)} />
      </strong>
      <span>{`${formatDuration(frames.total[frame])}, of which own ${formatDuration(frames.own[frame])}`}</span>
      <span>
        {top === frames.root ? formatShare(share) : `${formatShare(share)} of the shown, ${formatShare(ofAll)} of all`}
      </span>
      {frames.calls[frame] > 0 && <span>{`${formatCount(frames.calls[frame])} calls`}</span>}
    </>
  );
}

function Tip({ frames, hover, top }: { frames: Frames; hover: Hover; top: number }) {
  const isRight = hover.x > window.innerWidth / 2;
  const side = isRight ? { right: `${window.innerWidth - hover.x + 12}px` } : { left: `${hover.x + 12}px` };
  return (
    <div class="tip" style={{ ...side, top: `${hover.y + 16}px` }} aria-hidden="true">
      <Facts frames={frames} frame={hover.box.frame} top={top} />
    </div>
  );
}
