import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { canvasColour } from "../colours";
import { formatBytes, formatDuration } from "../format";
import { useWidth } from "../parts/use_width";
import { useTheme } from "../theme";
import type { Fold } from "../timeline/fold";
import { stacked, wholeRange, zoomed, type MemorySeries, type Range } from "./series";

const HEIGHT_PX = 340;
const MIN_LABELLED_PX = 18;
const NS = [1, 2, 5].flatMap((digit) => [...Array(16).keys()].map((power) => digit * 10 ** power));

interface AreaChartProps {
  series: MemorySeries;
  label: string;
  range: Range;
  onRange: (range: Range) => void;
  onCursor: (at: number | null) => void;
}

/** Stacked areas of memory. A drag zooms, a double click resets; the label names the keys. */
export function AreaChart({ series, label, range, onRange, onCursor }: AreaChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const width = useWidth(box);
  const theme = useTheme();
  useLayoutEffect(() => {
    if (!box.current || !width) return;
    const options = plotOptions(series, width, { onRange, onCursor });
    plot.current = new uPlot(options, plotData(series), box.current);
    plot.current.setScale("x", { min: range.from, max: range.to });
    return () => plot.current?.destroy();
  }, [series, width, theme]);
  useEffect(() => {
    const shown = plot.current?.scales.x;
    if (shown && (shown.min !== range.from || shown.max !== range.to))
      plot.current?.setScale("x", { min: range.from, max: range.to });
  }, [range.from, range.to]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !plot.current) return;
    if (actOnKey(plot.current, series, event.key, onRange)) event.preventDefault();
  };
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- it has keys of its own
    <div
      ref={box}
      class="memory-chart"
      role="application"
      aria-label={`${label}. Left and right move the cursor, plus and minus zoom, Home shows all.`}
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- it has keys of its own
      tabIndex={0}
      onKeyDown={onKeyDown}
    />
  );
}

/** Series with the total first: areas are drawn over each other, down to the first category. */
function plotData(series: MemorySeries): uPlot.AlignedData {
  return [series.times, ...stacked(series.sizes, series.times.length).reverse()] as uPlot.AlignedData;
}

type Listeners = Pick<AreaChartProps, "onRange" | "onCursor">;

function plotOptions(series: MemorySeries, width: number, listeners: Listeners): uPlot.Options {
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const areas = series.colours.map((colour) => ({
    fill: canvasColour(`colour-${colour}`),
    stroke: canvasColour("ground"),
    width: 0.5,
    paths: stepped,
    points: { show: false },
  }));
  return {
    width,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false }, points: { show: false } },
    scales: { x: { time: false }, y: { range: (_plot, _low, high) => [0, Math.max(1, high * 1.12)] } },
    axes: [
      {
        ...axisColours(),
        incrs: NS,
        splits: (_plot, _axis, from, to, step) => roundTimes(series.fold, from, to, step),
        values: (_plot, times) => times.map((time) => formatDuration(Math.round(series.fold.real(time)))),
      },
      { ...axisColours(), size: 76, incrs: BYTES, values: (_plot, sizes) => sizes.map((size) => formatBytes(size)) },
    ],
    series: [{}, ...areas.reverse()],
    hooks: {
      setScale: [(plot, scale) => scale === "x" && listeners.onRange(rangeOf(plot))],
      setCursor: [(plot) => listeners.onCursor(plot.cursor.idx ?? null)],
      draw: [(plot) => coverGaps(plot, series), (plot) => labelAreas(plot, series), (plot) => markPeak(plot, series)],
    },
  };
}

/** Folded times that are multiples of a step in recorded time, outside of gaps. */
function roundTimes(fold: Fold, from: number, to: number, step: number): number[] {
  return fold.segments(from, to).flatMap(({ from, to, later }) => {
    const first = Math.ceil((from + later) / step);
    const count = Math.floor((to + later) / step) - first + 1;
    return Array.from({ length: Math.max(0, count) }, (_, at) => (first + at) * step - later);
  });
}

const BYTES = [...Array(50).keys()].map((power) => 2 ** power);

function axisColours(): Pick<uPlot.Axis, "stroke" | "grid" | "ticks"> {
  const line = { stroke: canvasColour("line"), width: 1 };
  return { stroke: canvasColour("quiet"), grid: line, ticks: line };
}

export function rangeOf(plot: uPlot): Range {
  return { from: plot.scales.x.min ?? 0, to: plot.scales.x.max ?? 0 };
}

/** Hide the time between windows, where memory is unknown. */
function coverGaps(plot: uPlot, series: MemorySeries): void {
  const { ctx, bbox } = plot;
  const within = (time: number) =>
    Math.min(Math.max(plot.valToPos(time, "x", true), bbox.left), bbox.left + bbox.width);
  ctx.save();
  ctx.fillStyle = canvasColour("panel");
  for (const { from, to } of series.fold.gaps) {
    const [left, right] = [within(from), within(to)];
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

/** Draw the name of each category where its area is highest, if it fits. */
function labelAreas(plot: uPlot, series: MemorySeries): void {
  const { ctx } = plot;
  const areas = [...plot.data.slice(1)].reverse();
  const [first, last] = plot.series[0].idxs ?? [0, 0];
  ctx.save();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  series.categories.forEach((category, number) => {
    const sizes = series.sizes[number];
    let highest = first;
    for (let at = first; at <= last; at++) if (sizes[at] > sizes[highest]) highest = at;
    const top = plot.valToPos(areas[number][highest] ?? 0, "y", true);
    const bottom = plot.valToPos((areas[number][highest] ?? 0) - sizes[highest], "y", true);
    const x = plot.valToPos(series.times[highest], "x", true) + 6 * devicePixelRatio;
    if (bottom - top < MIN_LABELLED_PX * devicePixelRatio) return;
    writeOnPlate(plot, category, x, (top + bottom) / 2);
  });
  ctx.restore();
}

/** Draw a text on a background within the plot. */
function writeOnPlate(plot: uPlot, text: string, x: number, y: number): void {
  const { ctx, bbox } = plot;
  const [pad, width] = [3 * devicePixelRatio, ctx.measureText(text).width];
  const left = Math.max(bbox.left, Math.min(x, bbox.left + bbox.width - width - 2 * pad));
  ctx.textAlign = "left";
  ctx.fillStyle = canvasColour("ground");
  ctx.fillRect(left, y - 8 * devicePixelRatio, width + 2 * pad, 16 * devicePixelRatio);
  ctx.fillStyle = canvasColour("text");
  ctx.fillText(text, left + pad, y);
}

function markPeak(plot: uPlot, series: MemorySeries): void {
  const time = series.times[series.peak];
  const { from, to } = rangeOf(plot);
  if (time === undefined || time < from || time > to) return;
  const { ctx, bbox } = plot;
  const x = plot.valToPos(time, "x", true);
  const y = plot.valToPos(series.totals[series.peak], "y", true);
  ctx.save();
  ctx.strokeStyle = canvasColour("text");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.font = `bold ${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  writeOnPlate(
    plot,
    `Peak ${formatBytes(series.peakBytes)}`,
    x + 4,
    Math.max(bbox.top + 10, y - 12 * devicePixelRatio),
  );
  ctx.restore();
}

/** Handle a key; false if it has no meaning. */
function actOnKey(plot: uPlot, series: MemorySeries, key: string, onRange: (range: Range) => void): boolean {
  const { from, to } = rangeOf(plot);
  const left = plot.cursor.left ?? -1;
  const at = left < 0 ? plot.over.clientWidth / 2 : left;
  const move = { ArrowLeft: -1, ArrowRight: 1 }[key];
  const factor = { "+": 0.5, "=": 0.5, "-": 2 }[key];
  if (move) {
    const next = Math.max(0, Math.min(plot.over.clientWidth, at + (move * plot.over.clientWidth) / 50));
    plot.setCursor({ left: next, top: 10 }, true);
  } else if (factor) onRange(zoomed({ from, to }, plot.posToVal(at, "x"), factor, wholeRange(series)));
  else if (key === "Home" || key === "Escape") onRange(wholeRange(series));
  else return false;
  return true;
}
