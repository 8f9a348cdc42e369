/** Points on two logarithmic scales. Each series has a colour and a shape. */
import { useRef } from "preact/hooks";
import { cssColour, nthColour } from "../colours";
import { Name } from "./name";
import "./scatter.css";
import { useWidth } from "./use_width";

export interface Series {
  name: string;
  points: [number, number][];
}

/** Ticks are powers of `base`. */
export interface Scale {
  title: string;
  base: number;
  format: (value: number) => string;
}

interface ScatterProps {
  label: string;
  series: Series[];
  x: Scale;
  y: Scale;
  /** Label of the diagonal; both scales are the same then. */
  diagonal?: string;
}

const HEIGHT = 304;
const DEFAULT_WIDTH = 460;
const [LEFT, RIGHT, TOP, BOTTOM] = [96, 28, 10, 44];
const MAX_POINTS = 3000;
const MAX_MARKS = 5;
const MARK_PX = 75;
const SHAPES = [
  "m-3 -3h6v6h-6z",
  "m0 -4l4 4l-4 4l-4 -4z",
  "m0 -4l4 7h-8z",
  "m0 4l4 -7h-8z",
  "m-4 -1h3v-3h2v3h3v2h-3v3h-2v-3h-3z",
  "m-4 -2h8v4h-8z",
  "m-2 -4h4v8h-4z",
  "m-2 -2h4v4h-4z",
];

export function Scatter({ label, series, x, y, diagonal }: ScatterProps) {
  const box = useRef<HTMLElement>(null);
  const width = useWidth(box) || DEFAULT_WIDTH;
  const points = series.flatMap((one) => one.points);
  if (!points.length) return null;
  const both = diagonal ? range(points.flat(), x.base) : null;
  const across =
    both ??
    range(
      points.map(([value]) => value),
      x.base,
    );
  const up =
    both ??
    range(
      points.map(([, value]) => value),
      y.base,
    );
  const pathOf = ([a, b]: [number, number]) => `M${toX(a, across, width)} ${toY(b, up)}`;
  return (
    <figure class="scatter" ref={box}>
      <svg viewBox={`0 0 ${width} ${HEIGHT}`} role="img" aria-label={label}>
        <Axes x={x} y={y} across={across} up={up} width={width} />
        {diagonal && (
          <>
            <line class="diagonal" x1={LEFT} y1={HEIGHT - BOTTOM} x2={width - RIGHT} y2={TOP} />
            <text x={LEFT + 8} y={TOP + 12}>
              {diagonal}
            </text>
          </>
        )}
        {series.map((one, at) => (
          <path
            key={one.name}
            d={downsample(one.points)
              .map((point) => pathOf(point) + shapeOf(at))
              .join("")}
            style={fill(at)}
          />
        ))}
      </svg>
      <figcaption class="scatter-names">
        {series.map((one, at) => (
          <span key={one.name}>
            <svg viewBox="-5 -5 10 10" aria-hidden="true">
              <path d={`M0 0${shapeOf(at)}`} style={fill(at)} />
            </svg>
            <Name text={one.name} maxLength={60} />
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

function Axes({ x, y, across, up, width }: { x: Scale; y: Scale; across: Range; up: Range; width: number }) {
  return (
    <>
      {marks(across, Math.min(MAX_MARKS, Math.max(1, Math.floor((width - LEFT) / MARK_PX)))).map((value) => (
        <g key={value}>
          <line x1={toX(value, across, width)} x2={toX(value, across, width)} y1={TOP} y2={HEIGHT - BOTTOM} />
          <text x={toX(value, across, width)} y={HEIGHT - BOTTOM + 20} text-anchor="middle">
            {x.format(value)}
          </text>
        </g>
      ))}
      {marks(up).map((value) => (
        <g key={value}>
          <line x1={LEFT} x2={width - RIGHT} y1={toY(value, up)} y2={toY(value, up)} />
          <text x={LEFT - 6} y={toY(value, up) + 4} text-anchor="end">
            {y.format(value)}
          </text>
        </g>
      ))}
      <text x={(LEFT + width) / 2} y={HEIGHT - 6} text-anchor="middle">
        {`${x.title} →`}
      </text>
      <text x={-HEIGHT / 2 + 10} y={12} text-anchor="middle" transform="rotate(-90)">
        {`${y.title} →`}
      </text>
    </>
  );
}

/** Integer exponents of a logarithmic scale. */
interface Range {
  base: number;
  low: number;
  high: number;
}

function range(values: number[], base: number): Range {
  const known = values.filter((value) => value > 0);
  const min = known.reduce((one, other) => Math.min(one, other), Infinity);
  const max = known.reduce((one, other) => Math.max(one, other), 1);
  const low = Math.floor(logarithm(Number.isFinite(min) ? min : 1, base));
  return { base, low, high: Math.max(low + 1, Math.ceil(logarithm(max, base))) };
}

function marks({ base, low, high }: Range, maxMarks = MAX_MARKS): number[] {
  const every = Math.ceil((high - low) / maxMarks);
  return Array.from({ length: Math.floor((high - low) / every) + 1 }, (_, at) => base ** (low + at * every));
}

/** The position of a value in a range, from 0 to 1; 0 is at the start. */
function share(value: number, { base, low, high }: Range): number {
  return value > 0 ? Math.max(0, Math.min(1, (logarithm(value, base) - low) / (high - low))) : 0;
}

function logarithm(value: number, base: number): number {
  return Math.log2(value) / Math.log2(base);
}

function toX(value: number, across: Range, width: number): number {
  return Math.round(LEFT + share(value, across) * (width - LEFT - RIGHT));
}

function toY(value: number, up: Range): number {
  return Math.round(HEIGHT - BOTTOM - share(value, up) * (HEIGHT - TOP - BOTTOM));
}

/** Every n-th point, if there are too many. */
function downsample(points: [number, number][]): [number, number][] {
  const every = Math.ceil(points.length / MAX_POINTS);
  return every > 1 ? points.filter((_, at) => at % every === 0) : points;
}

function shapeOf(at: number): string {
  return SHAPES[at % SHAPES.length];
}

function fill(at: number) {
  return { fill: cssColour(nthColour(at)) };
}
