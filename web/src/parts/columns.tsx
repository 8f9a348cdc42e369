/** Stacked columns side by side: one for each step, say. Pointer and arrow keys choose one. */
import { formatDuration } from "../format";
import type { StackPart } from "./stack";

export interface StackColumn {
  title: string;
  /** How long it takes, in all. */
  timeNs: number | null;
  parts: StackPart[];
}

interface ColumnsProps {
  label: string;
  columns: StackColumn[];
  shown: number | null;
  onShow: (at: number | null) => void;
  onChoose: (at: number) => void;
}

/** A column that is so many times as high as the middle one is cut, so that the others can be seen. */
const CUT_AT = 3;
const HEIGHT = 1000;
const STEPS: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };

export function Columns({ label, columns, shown, onShow, onChoose }: ColumnsProps) {
  const heights = columns.map((column) => column.timeNs ?? 0);
  const top = topOf(heights);
  const cut = heights.filter((height) => height > top).length;
  const pointed = (event: { offsetX: number; currentTarget: Element }) =>
    clamped(Math.floor((event.offsetX / event.currentTarget.clientWidth) * columns.length), columns.length);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter") return onChoose(shown ?? 0);
    if (!STEPS[event.key]) return;
    event.preventDefault();
    onShow(clamped((shown ?? -1) + STEPS[event.key], columns.length));
  };
  return (
    <div class="columns">
      <div class="columns-scale" aria-hidden="true">
        <span>{formatDuration(top)}</span>
        <span>{formatDuration(top / 2)}</span>
        <span>0</span>
      </div>
      <svg
        viewBox={`0 0 ${columns.length} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="slider"
        tabindex={0}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={columns.length - 1}
        aria-valuenow={shown ?? 0}
        aria-valuetext={saysOf(columns[shown ?? 0])}
        onKeyDown={onKeyDown}
        onPointerMove={(event) => onShow(pointed(event))}
        onPointerLeave={() => onShow(null)}
        onClick={(event) => onChoose(pointed(event))}
      >
        <Drawn columns={columns} top={top} />
        {shown !== null && <rect class="pointed" x={shown} y={0} width={1} height={HEIGHT} />}
      </svg>
      <div class="columns-names quiet" aria-hidden="true">
        <span>{columns[0]?.title}</span>
        <span>{cut > 0 && `${cut} cut, up to ${formatDuration(Math.max(...heights))}`}</span>
        <span>{columns.at(-1)?.title}</span>
      </div>
    </div>
  );
}

/** One path for each part, through all columns. */
function Drawn({ columns, top }: { columns: StackColumn[]; top: number }) {
  const bases = columns.map(() => 0);
  const gap = columns.length > 200 ? 0 : 0.12;
  return (columns[0]?.parts ?? []).map((part, place) => {
    const boxes = columns.map((column, at) => {
      const value = column.parts[place].value ?? 0;
      const [low, high] = [bases[at], bases[at] + value].map((height) => y(height, top));
      bases[at] += value;
      return high < low ? `M${at + gap / 2} ${low}V${high}h${1 - gap}V${low}z` : "";
    });
    return <path key={part.name} d={boxes.join("")} style={{ fill: part.colour }} />;
  });
}

function y(value: number, top: number): number {
  return Math.round(HEIGHT * (1 - Math.min(1, value / top)));
}

function topOf(heights: number[]): number {
  const sorted = [...heights].sort((one, other) => one - other);
  const highest = sorted.at(-1) ?? 1;
  return Math.max(1, Math.min(highest, CUT_AT * (sorted[Math.floor(sorted.length / 2)] || highest)));
}

export function saysOf(column?: StackColumn): string {
  if (!column) return "";
  const parts = column.parts.filter((part) => (part.value ?? 0) !== 0);
  const said = parts.map((part) => `${part.name} ${formatDuration(part.value)}`);
  return `${column.title}: ${formatDuration(column.timeNs)}. ${said.join(", ")}`;
}

function clamped(at: number, length: number): number {
  return Math.max(0, Math.min(length - 1, at));
}
