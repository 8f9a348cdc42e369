import { useEffect, useMemo, useRef } from "preact/hooks";
import { counted, formatDuration } from "../format";
import { Name } from "../parts/name";
import { useTheme } from "../theme";
import { formatValue } from "./counters";
import { drawRuler, RULER_HEIGHT } from "./draw_ruler";
import { TrackPainter } from "./draw_tracks";
import { followPointer } from "./gestures";
import { UNIT, type Lane } from "./lanes";
import { Minimap } from "./minimap";
import { filteredPalette, readPalette, type Palette } from "./palette";
import { formatSteps } from "./ruler";
import { useStage, type Hover, type Pane, type Stage } from "./stage";

/** The overview of all time, the ruler, the pinned tracks, and all tracks. */
export function Tracks({ stage }: { stage: Stage }) {
  const isMoving = useStage(stage, (stage) => stage.isMoving);
  const hasPins = useStage(stage, ({ pins }) => pins.length > 0);
  return (
    <div class={isMoving ? "timeline-tracks timeline-moving" : "timeline-tracks"}>
      <Minimap stage={stage} />
      <Ruler stage={stage} />
      {hasPins && <PaneView pane={stage.pinned} title="Pinned tracks" />}
      <PaneView pane={stage.main} title="Tracks" />
    </div>
  );
}

function Ruler({ stage }: { stage: Stage }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useDrawing(stage, canvas, (context, palette) => {
    sizeCanvas(context.canvas, stage.width, RULER_HEIGHT);
    drawRuler(context, stage, palette);
  });
  useEffect(() => followPointer(canvas.current!, stage, null), [stage]);
  return (
    <div class="timeline-ruler">
      <StepsInView stage={stage} />
      <canvas ref={canvas} role="img" aria-label="Time, and steps. Drag to measure." />
    </div>
  );
}

/** The step at the pointer, or else the visible steps. */
function StepsInView({ stage }: { stage: Stage }) {
  const stepsText = useStage(stage, ({ steps, hover, view }) =>
    formatSteps(steps, hover ? { from: hover.time, to: hover.time } : view),
  );
  const rank = useStage(stage, ({ steps }) => steps[0]?.rank ?? null);
  return (
    <span class="timeline-corner quiet">{rank === null ? stepsText : `Rank ${rank}: ${stepsText.toLowerCase()}`}</span>
  );
}

type Ref<Kind> = { readonly current: Kind | null };

/** Draw once before the next frame, after each change. */
function useDrawing(
  stage: Stage,
  canvas: Ref<HTMLCanvasElement>,
  paint: (context: CanvasRenderingContext2D, palette: Palette) => void,
): void {
  const theme = useTheme();
  useEffect(() => {
    const palette = readPalette(stage.data);
    const context = canvas.current!.getContext("2d", { alpha: false })!;
    const filter = () => {
      const { matches, shown } = stage;
      return { matches, shown, palette: filteredPalette(palette, matches, shown) };
    };
    let filtered = filter();
    let frame = 0;
    const draw = () => {
      frame = 0;
      if (filtered.matches !== stage.matches || filtered.shown !== stage.shown) filtered = filter();
      paint(context, filtered.palette);
    };
    const ask = () => {
      frame ||= requestAnimationFrame(draw);
    };
    ask();
    const stop = stage.listen(ask);
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [stage, theme, canvas]);
}

/** Tracks that scroll together. */
function PaneView({ pane, title }: { pane: Pane; title: string }) {
  const { stage } = pane;
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const painter = useMemo(() => new TrackPainter(), []);
  useScrolling(pane, scroller, content, canvas);
  useDrawing(stage, canvas, (context, palette) => painter.draw(context, pane, palette));
  useEffect(() => followPointer(canvas.current!, stage, pane), [stage, pane]);
  const about = `${counted(stage.data.size, "span")} on ${counted(stage.data.tracks.length, "track")}`;
  const label = pane.isPinned ? "Pinned tracks" : `${about}. "Show as table" lists those in view.`;
  return (
    <section
      class={pane.isPinned ? "timeline-pinned" : "timeline-scroll"}
      ref={scroller}
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keys
      tabIndex={0}
      aria-label={title}
    >
      <div class="timeline-content" ref={content}>
        <Labels pane={pane} />
        <canvas ref={canvas} role="img" aria-label={label} />
      </div>
      <Tooltip pane={pane} />
    </section>
  );
}

/** Keep the size and position of the pane, and of its canvas, equal to those of the scrolling element. */
function useScrolling(
  pane: Pane,
  scroller: Ref<HTMLElement>,
  content: Ref<HTMLElement>,
  tracks: Ref<HTMLCanvasElement>,
): void {
  useEffect(() => {
    const { stage } = pane;
    const [box, inside, canvas] = [scroller.current!, content.current!, tracks.current!];
    const fit = () => {
      inside.style.height = `${Math.max(pane.tracksHeight, pane.isPinned ? 0 : box.clientHeight)}px`;
    };
    const resize = () => {
      fit();
      stage.width = Math.max(100, canvas.parentElement!.clientWidth - canvas.offsetLeft);
      pane.height = box.clientHeight;
      sizeCanvas(canvas, stage.width, pane.height);
    };
    const scroll = () => {
      pane.scrollTop = box.scrollTop;
      stage.change({ hover: null });
    };
    pane.scrollTo = (top) => {
      resize();
      box.scrollTop = top;
      if (box.scrollTop !== pane.scrollTop) scroll();
    };
    const observer = new ResizeObserver(() => {
      resize();
      stage.change({});
    });
    observer.observe(box);
    resize();
    box.scrollTop = pane.scrollTop;
    box.addEventListener("scroll", scroll);
    const stop = stage.listen(fit);
    return () => {
      stop();
      observer.disconnect();
      box.removeEventListener("scroll", scroll);
    };
  }, [pane, scroller, content, tracks]);
}

/** Set the pixels of a canvas to those of the screen. */
export function sizeCanvas(canvas: HTMLCanvasElement, width: number, height: number): void {
  const [columns, lines] = [width, height].map((size) => Math.max(1, Math.round(size * devicePixelRatio)));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== lines) canvas.height = lines;
}

function Labels({ pane }: { pane: Pane }) {
  const { stage } = pane;
  const lanes = useStage(stage, () => pane.lanes);
  const markedRank = useStage(stage, (stage) => stage.markedRank);
  return (
    <div class="timeline-labels">
      {lanes
        .filter((lane) => lane.kind !== "row")
        .map((lane) => (
          <Label
            key={`${lane.unit}`}
            lane={lane}
            stage={stage}
            isMarked={markedRank !== null && lane.rank === markedRank}
          />
        ))}
    </div>
  );
}

function Label({ lane, stage, isMarked }: { lane: Lane; stage: Stage; isMarked: boolean }) {
  const counter = lane.counter === null ? null : stage.counters[lane.counter];
  const maxText = counter ? `max ${formatValue(counter.max, counter.unit)}` : "";
  const kind = `timeline-label timeline-${lane.kind}`;
  const isHead = lane.kind === "group" && isMarked;
  return (
    <div
      class={isHead ? `${kind} timeline-marked` : kind}
      style={{ top: `${lane.unit * UNIT}px`, height: `${lane.units * UNIT}px` }}
      title={[lane.title.slice(0, 500), lane.note, maxText].filter(Boolean).join("\n")}
    >
      {lane.key === null ? (
        <Name text={lane.title} maxLength={80} />
      ) : (
        <button
          type="button"
          class="timeline-toggle"
          aria-expanded={lane.isOpen}
          onClick={() => stage.toggle(lane.key!)}
        >
          <span aria-hidden="true">{lane.isOpen ? "▾" : "▸"}</span> <Name text={lane.title} maxLength={80} />
        </button>
      )}
      {counter && <span class="quiet">{maxText}</span>}
      {lane.track !== null && <PinButton stage={stage} track={lane.track} title={lane.title} />}
    </div>
  );
}

function PinButton({ stage, track, title }: { stage: Stage; track: number; title: string }) {
  const isPinned = useStage(stage, ({ pins }) => pins.includes(track));
  return (
    <button
      type="button"
      class="timeline-pin"
      aria-pressed={isPinned}
      aria-label={`Pin ${title.slice(0, 80)}`}
      title={isPinned ? "Unpin" : "Pin above the others (P pins the selected span's track)"}
      onClick={() => stage.togglePin(track)}
    >
      <span aria-hidden="true">{isPinned ? "★" : "☆"}</span>
    </button>
  );
}

const TOOLTIP_SHIFT = 14;

/** Tooltip of the hovered span. */
function Tooltip({ pane }: { pane: Pane }) {
  const hover = useStage(pane.stage, ({ hover }) => (hover?.pane === pane ? hover : null));
  if (!hover || hover.span === null) return null;
  return <TooltipBox pane={pane} hover={hover} span={hover.span} />;
}

function TooltipBox({ pane, hover, span }: { pane: Pane; hover: Hover; span: number }) {
  const { stage } = pane;
  const { data } = stage;
  const isLeft = hover.x > stage.width * 0.6;
  const style = {
    top: `${pane.scrollTop + hover.y + TOOLTIP_SHIFT}px`,
    ...(isLeft
      ? { right: `${stage.width - hover.x + TOOLTIP_SHIFT}px` }
      : { left: `calc(var(--labels) + ${hover.x + TOOLTIP_SHIFT}px)` }),
  };
  return (
    <div class="timeline-tooltip" style={style} aria-hidden="true">
      <strong>{formatDuration(data.durations[span])}</strong> <Name text={data.name(span)} maxLength={120} />
      <div class="quiet">
        <Name text={data.track(span).name} maxLength={60} />
      </div>
    </div>
  );
}
