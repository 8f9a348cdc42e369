import { useEffect, useMemo, useRef } from "preact/hooks";
import { counted, formatDuration } from "../format";
import { Name } from "../parts/name";
import { useTheme } from "../theme";
import { formatValue } from "./counters";
import { drawRuler, RULER_HEIGHT } from "./draw_ruler";
import { TrackPainter } from "./draw_tracks";
import { followPointer } from "./gestures";
import { UNIT, type Lane } from "./lanes";
import { readPalette, searched } from "./palette";
import { useStage, type Stage } from "./stage";

/** The ruler, the names of tracks and their boxes. */
export function Tracks({ stage }: { stage: Stage }) {
  const ruler = useRef<HTMLCanvasElement>(null);
  const tracks = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const isMeasuring = useStage(stage, (stage) => stage.isMeasuring);
  useDrawing(stage, ruler, tracks);
  useScrolling(stage, scroller, content, tracks);
  useEffect(() => followPointer(tracks.current!, stage), [stage]);
  useEffect(() => followPointer(ruler.current!, stage, true), [stage]);
  const rank = stage.steps[0]?.rank;
  const about = `${counted(stage.data.size, "span")} on ${counted(stage.data.tracks.length, "track")}`;
  return (
    <div class={isMeasuring ? "timeline-tracks timeline-measuring" : "timeline-tracks"}>
      <div class="timeline-ruler">
        <span class="timeline-corner quiet">
          {!stage.steps.length ? "No steps" : rank === null ? "Steps" : `Steps of rank ${rank}`}
        </span>
        <canvas ref={ruler} role="img" aria-label="Time, and steps. Drag to measure." />
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keys */}
      <section class="timeline-scroll" ref={scroller} tabIndex={0} aria-label="Tracks">
        <div class="timeline-content" ref={content}>
          <Labels stage={stage} />
          <canvas ref={tracks} role="img" aria-label={`${about}. "Show as table" lists those in view.`} />
        </div>
      </section>
      <Tooltip stage={stage} />
    </div>
  );
}

type Ref<Kind> = { readonly current: Kind | null };

/** Draws both canvases once before the next frame, after each change. */
function useDrawing(stage: Stage, ruler: Ref<HTMLCanvasElement>, tracks: Ref<HTMLCanvasElement>): void {
  const theme = useTheme();
  const painter = useMemo(() => new TrackPainter(), []);
  useEffect(() => {
    const palette = readPalette(stage.data);
    const contexts = [ruler, tracks].map((canvas) => canvas.current!.getContext("2d", { alpha: false })!);
    let shown = { matches: stage.matches, palette: searched(palette, stage.matches) };
    let frame = 0;
    const draw = () => {
      frame = 0;
      const { matches } = stage;
      if (shown.matches !== matches) shown = { matches, palette: searched(palette, matches) };
      drawRuler(contexts[0], stage, shown.palette);
      painter.draw(contexts[1], stage, shown.palette);
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
  }, [stage, theme, painter, ruler, tracks]);
}

/** Keeps the stage's size and place, and the canvases', as those of the part of the page that scrolls. */
function useScrolling(
  stage: Stage,
  scroller: Ref<HTMLElement>,
  content: Ref<HTMLElement>,
  tracks: Ref<HTMLCanvasElement>,
): void {
  useEffect(() => {
    const [box, inside, canvas] = [scroller.current!, content.current!, tracks.current!];
    const ruler = box.previousElementSibling!.querySelector("canvas")!;
    const resize = () => {
      inside.style.height = `${Math.max(stage.tracksHeight, box.clientHeight)}px`;
      stage.width = Math.max(100, canvas.parentElement!.clientWidth - canvas.offsetLeft);
      stage.height = box.clientHeight;
      sizeCanvas(canvas, stage.width, stage.height);
      sizeCanvas(ruler, stage.width, RULER_HEIGHT);
    };
    const scroll = () => {
      stage.scrollTop = box.scrollTop;
      stage.change({ hover: null });
    };
    stage.scrollTo = (top) => {
      resize();
      box.scrollTop = top;
      if (box.scrollTop !== stage.scrollTop) scroll();
    };
    const observer = new ResizeObserver(() => {
      resize();
      stage.change({});
    });
    observer.observe(box);
    resize();
    box.scrollTop = stage.scrollTop;
    box.addEventListener("scroll", scroll);
    const stop = stage.listen(() => {
      inside.style.height = `${Math.max(stage.tracksHeight, box.clientHeight)}px`;
    });
    return () => {
      stop();
      observer.disconnect();
      box.removeEventListener("scroll", scroll);
    };
  }, [stage, scroller, content, tracks]);
}

/** As many pixels as the screen has in that size. */
function sizeCanvas(canvas: HTMLCanvasElement, width: number, height: number): void {
  const [columns, lines] = [width, height].map((size) => Math.max(1, Math.round(size * devicePixelRatio)));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== lines) canvas.height = lines;
}

function Labels({ stage }: { stage: Stage }) {
  const lanes = useStage(stage, (stage) => stage.lanes);
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
  const most = counter ? `most ${formatValue(counter.most, counter.unit)}` : "";
  const kind = `timeline-label timeline-${lane.kind}`;
  const isHead = lane.kind === "group" && isMarked;
  return (
    <div
      class={isHead ? `${kind} timeline-marked` : kind}
      style={{ top: `${lane.unit * UNIT}px`, height: `${lane.units * UNIT}px` }}
      title={[lane.title.slice(0, 500), lane.note, most].filter(Boolean).join("\n")}
    >
      {lane.key === null ? (
        <Name text={lane.title} most={80} />
      ) : (
        <button type="button" aria-expanded={lane.isOpen} onClick={() => stage.toggle(lane.key!)}>
          <span aria-hidden="true">{lane.isOpen ? "▾" : "▸"}</span> <Name text={lane.title} most={80} />
        </button>
      )}
      {counter && <span class="quiet">{most}</span>}
    </div>
  );
}

const TOOLTIP_SHIFT = 14;

/** What the pointer is on. */
function Tooltip({ stage }: { stage: Stage }) {
  const hover = useStage(stage, (stage) => stage.hover);
  if (!hover || hover.span === null) return null;
  const { data } = stage;
  const isLeft = hover.x > stage.width * 0.6;
  const style = {
    top: `${RULER_HEIGHT + hover.y + TOOLTIP_SHIFT}px`,
    ...(isLeft
      ? { right: `${stage.width - hover.x + TOOLTIP_SHIFT}px` }
      : { left: `calc(var(--labels) + ${hover.x + TOOLTIP_SHIFT}px)` }),
  };
  return (
    <div class="timeline-tooltip" style={style} aria-hidden="true">
      <strong>{formatDuration(data.durations[hover.span])}</strong> <Name text={data.name(hover.span)} most={120} />
      <div class="quiet">
        <Name text={data.track(hover.span).name} most={60} />
      </div>
    </div>
  );
}
