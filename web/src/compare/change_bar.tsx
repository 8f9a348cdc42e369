/** A change as a bar from 0, with its interval as whiskers. */
import { formatChange } from "../format";

interface ChangeBarProps {
  change: number | null;
  interval: [number, number] | null;
  verdict: string;
  /** The change at either end of the bar. */
  scale: number;
  threshold: number;
}

const [WIDTH, HEIGHT] = [200, 18];
const MIDDLE = WIDTH / 2;

/** Limits of `widestChange`. */
const [MIN_SCALE, MAX_SCALE] = [0.1, 0.5];

/** The largest of the changes, as the scale of their bars. */
export function widestChange(changes: (number | null)[]): number {
  const widest = changes.reduce<number>((scale, change) => Math.max(scale, Math.abs(change ?? 0)), 0);
  return Math.max(MIN_SCALE, Math.min(MAX_SCALE, widest));
}

export function ChangeBar({ change, interval, verdict, scale, threshold }: ChangeBarProps) {
  if (change === null) return <span>–</span>;
  const toX = (part: number) => MIDDLE + Math.max(-1, Math.min(1, part / scale)) * (MIDDLE - 3);
  const [from, to] = [toX(Math.min(0, change)), toX(Math.max(0, change))];
  return (
    <span class="change">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} class={verdict} aria-hidden="true">
        <rect class="within" x={toX(-threshold)} y={0} width={toX(threshold) - toX(-threshold)} height={HEIGHT} />
        <rect x={from} y={4} width={Math.max(1, to - from)} height={HEIGHT - 8} />
        <path class="zero" d={`M${MIDDLE} 0V${HEIGHT}`} />
        {interval && <Whiskers from={toX(interval[0])} to={toX(interval[1])} />}
      </svg>
      <span>{formatChange(change)}</span>
    </span>
  );
}

function Whiskers({ from, to }: { from: number; to: number }) {
  const middle = HEIGHT / 2;
  return <path class="whiskers" d={`M${from} 4V${HEIGHT - 4}M${from} ${middle}H${to}M${to} 4V${HEIGHT - 4}`} />;
}
