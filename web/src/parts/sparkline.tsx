/** A few numbers as a line between the least and the largest, the last one marked. Its title has the numbers. */
const [WIDTH, HEIGHT, RADIUS] = [72, 20, 2.5];

/** The height is at least this share of the largest number, so that noise is no steep slope. */
const MIN_SPAN = 0.1;

export function Sparkline({ values, title }: { values: number[]; title: string }) {
  if (values.length < 2) return null;
  const [least, top] = [Math.min(...values), Math.max(...values)];
  const span = Math.max(top - least, MIN_SPAN * top, Number.MIN_VALUE);
  const bottom = (top + least - span) / 2;
  const points = values.map((value, at) => [
    RADIUS + (at / (values.length - 1)) * (WIDTH - 2 * RADIUS),
    RADIUS + (1 - (value - bottom) / span) * (HEIGHT - 2 * RADIUS),
  ]);
  const [lastX, lastY] = points[points.length - 1];
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={title}>
      <title>{title}</title>
      <polyline points={points.map((point) => point.join(",")).join(" ")} />
      <circle cx={lastX} cy={lastY} r={RADIUS} />
    </svg>
  );
}
