/** A change as a bar from 0, with the ends between which it lies as whiskers. */
import { formatChange } from "../format";

interface ChangeBarProps {
  change: number | null;
  interval: [number, number] | null;
  verdict: string;
  /** The change at either end of the picture. */
  most: number;
  threshold: number;
}

const [WIDTH, HEIGHT] = [200, 18];
const MIDDLE = WIDTH / 2;

/** The longest bars show at least such a change, and at most the other. */
const [LEAST_SCALE, MOST_SCALE] = [0.1, 0.5];

/** The change at either end of the pictures of these changes. */
export function widestChange(changes: (number | null)[]): number {
  const widest = changes.reduce<number>((most, change) => Math.max(most, Math.abs(change ?? 0)), 0);
  return Math.max(LEAST_SCALE, Math.min(MOST_SCALE, widest));
}

export function ChangeBar({ change, interval, verdict, most, threshold }: ChangeBarProps) {
  if (change === null) return <span>–</span>;
  const place = (part: number) => MIDDLE + Math.max(-1, Math.min(1, part / most)) * (MIDDLE - 3);
  const [from, to] = [place(Math.min(0, change)), place(Math.max(0, change))];
  return (
    <span class="change">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} class={verdict} aria-hidden="true">
        <rect class="within" x={place(-threshold)} y={0} width={place(threshold) - place(-threshold)} height={HEIGHT} />
        <rect x={from} y={4} width={Math.max(1, to - from)} height={HEIGHT - 8} />
        <path class="zero" d={`M${MIDDLE} 0V${HEIGHT}`} />
        {interval && <Whiskers from={place(interval[0])} to={place(interval[1])} />}
      </svg>
      <span>{formatChange(change)}</span>
    </span>
  );
}

function Whiskers({ from, to }: { from: number; to: number }) {
  const middle = HEIGHT / 2;
  return <path class="whiskers" d={`M${from} 4V${HEIGHT - 4}M${from} ${middle}H${to}M${to} 4V${HEIGHT - 4}`} />;
}
