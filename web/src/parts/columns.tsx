/** Stacked columns side by side, such as one per step. Pointer and arrow keys select one. */
import { useRef } from "preact/hooks";
import { counted, formatDuration } from "../format";
import { columnAt, layOutColumns, timeScale, labelledColumns, type ColumnLayout } from "./axis";
import type { StackPart } from "./stack";

export interface StackColumn {
  title: string;
  /** Missing numbers are gaps. */
  number: number;
  /** Label below the column instead of its number. */
  name?: string;
  /** Total time. */
  timeNs: number | null;
  parts: StackPart[];
}

/** A kind of event above the columns `at` which it occurred. */
export interface ColumnMark {
  symbol: string;
  title: string;
  at: number[];
}

interface ColumnsProps {
  label: string;
  noun: string;
  columns: StackColumn[];
  marks?: ColumnMark[];
  /** Space for so many columns at least. */
  minColumns?: number;
  shown: number | null;
  onShow: (at: number | null) => void;
  /** Of a click or Enter; without it they select, as a pointer does. */
  onChoose?: (at: number) => void;
}

/** A column higher than this multiple of the median is truncated, so that the others are visible. */
const TRUNCATION_FACTOR = 3;
const HEIGHT = 1000;
const MAX_TICKS = 4;
const MAX_LABELS = 8;
const STEPS: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };

export function Columns(props: ColumnsProps) {
  const { label, noun, columns, marks = [], minColumns = 1, shown, onShow, onChoose = onShow } = props;
  const heights = columns.map((column) => column.timeNs ?? 0);
  const scale = timeScale(topOf(heights), MAX_TICKS);
  const top = scale[scale.length - 1].value;
  const cut = heights.filter((height) => height > top).length;
  const layout = layOutColumns(
    columns.map(({ number }) => number),
    minColumns,
  );
  const last = useRef(-1); // keys continue from here, also after the pointer was elsewhere
  last.current = Math.min(shown ?? last.current, columns.length - 1);
  const focused = Math.max(0, last.current);
  const toColumn = (event: { offsetX: number; currentTarget: Element }) =>
    columnAt(layout, (event.offsetX / event.currentTarget.clientWidth) * layout.width);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter") return onChoose(focused);
    if (!STEPS[event.key]) return;
    event.preventDefault();
    onShow(Math.max(0, Math.min(columns.length - 1, last.current + STEPS[event.key])));
  };
  const notes = [
    cut > 0 && `${counted(cut, noun)} cut, up to ${formatDuration(Math.max(...heights))}`,
    layout.gaps.length > 0 && `In gaps, ${noun}s were not recorded`,
  ].filter(Boolean);
  const seen = marks.filter((mark) => mark.at.length > 0);
  const marksOf = (at: number) => seen.filter((mark) => mark.at.includes(at)).map(({ title }) => `, with ${title}`);
  return (
    <div class="columns">
      {seen.length > 0 && <Marks marks={seen} layout={layout} />}
      <div class="columns-scale" aria-hidden="true">
        {scale.map(({ value, label }) => (
          <span key={value} style={{ bottom: `${(100 * value) / top}%` }}>
            {label}
          </span>
        ))}
        <span class="columns-widest">{scale[scale.length - 1].label}</span>
      </div>
      <svg
        viewBox={`0 0 ${layout.width} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="slider"
        tabindex={0}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={columns.length - 1}
        aria-valuenow={focused}
        aria-valuetext={`${describeColumn(columns[focused])}${marksOf(focused).join("")}`}
        onKeyDown={onKeyDown}
        onPointerMove={(event) => onShow(toColumn(event))}
        onPointerLeave={() => onShow(null)}
        onClick={(event) => onChoose(toColumn(event))}
      >
        {scale.map(({ value }) => (
          <path key={value} class="columns-line" d={`M0 ${y(value, top)}H${layout.width}`} />
        ))}
        {layout.gaps.map(([left, width]) => (
          <rect key={left} class="columns-gap" x={left} y={0} width={width} height={HEIGHT} />
        ))}
        <Drawn columns={columns} layout={layout} top={top} />
        {shown !== null && <rect class="pointed" x={layout.lefts[shown]} y={0} width={1} height={HEIGHT} />}
      </svg>
      <Numbers columns={columns} layout={layout} noun={noun} />
      {notes.length > 0 && <p class="columns-said quiet">{`${notes.join(". ")}.`}</p>}
    </div>
  );
}

/** Symbols above the columns. */
function Marks({ marks, layout }: { marks: ColumnMark[]; layout: ColumnLayout }) {
  return (
    <div class="columns-marks" aria-hidden="true">
      {marks.flatMap(({ symbol, title, at }) =>
        at.map((column) => (
          <span
            key={`${title} ${column}`}
            title={title}
            style={{ left: `${(100 * (layout.lefts[column] + 0.5)) / layout.width}%` }}
          >
            {symbol}
          </span>
        )),
      )}
    </div>
  );
}

/** Numbers below some of the columns. */
function Numbers({ columns, layout, noun }: { columns: StackColumn[]; layout: ColumnLayout; noun: string }) {
  const numbers = columns.map(({ number }) => number);
  return (
    <div class="columns-names quiet" aria-hidden="true">
      {labelledColumns(numbers, layout, MAX_LABELS).map((at) => (
        <span key={at} style={{ left: `${(100 * (layout.lefts[at] + 0.5)) / layout.width}%` }}>
          {columns[at].name ?? numbers[at]}
        </span>
      ))}
      <span class="columns-noun">{noun}</span>
    </div>
  );
}

/** One path per part, through all columns. */
function Drawn({ columns, layout, top }: { columns: StackColumn[]; layout: ColumnLayout; top: number }) {
  const bases = columns.map(() => 0);
  const gap = columns.length > 200 ? 0 : 0.12;
  return (columns[0]?.parts ?? []).map((part, partIndex) => {
    const boxes = columns.map((column, at) => {
      const value = column.parts[partIndex].value ?? 0;
      const [low, high] = [bases[at], bases[at] + value].map((height) => y(height, top));
      bases[at] += value;
      return high < low ? `M${layout.lefts[at] + gap / 2} ${low}V${high}h${1 - gap}V${low}z` : "";
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
  return Math.max(1, Math.min(highest, TRUNCATION_FACTOR * (sorted[Math.floor(sorted.length / 2)] || highest)));
}

export function describeColumn(column?: Omit<StackColumn, "number">): string {
  if (!column) return "";
  const parts = column.parts.filter((part) => (part.value ?? 0) !== 0);
  const texts = parts.map((part) => `${part.name} ${formatDuration(part.value)}`);
  return `${column.title}: ${formatDuration(column.timeNs)}. ${texts.join(", ")}`;
}
