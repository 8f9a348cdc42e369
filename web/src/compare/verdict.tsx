/** The verdict on the typical step: its change and the interval of that. */
import { formatChange, formatDuration } from "../format";
import type { Comparison } from "../page_data";
import { formatInterval, labelVerdict } from "./labels";

export function Verdict({ comparison }: { comparison: Comparison }) {
  const step = comparison.rows.find(({ kind, name }) => kind === "step" && name === "typical step");
  if (!step) {
    return (
      <section class="hero" aria-label="Verdict">
        <p class="hero-step">Nothing to compare: one of the runs has no steps.</p>
      </section>
    );
  }
  const label = labelVerdict(step);
  return (
    <section class="hero" aria-label="Verdict">
      <p class={`hero-step verdict ${step.verdict}`}>
        <strong>{label.charAt(0).toUpperCase() + label.slice(1)}</strong>
      </p>
      <p class="hero-change">
        {`${formatDuration(step.before)} → ${formatDuration(step.after)} per typical step, `}
        <strong>{formatChange(step.change)}</strong>
        {step.interval && <span class="quiet">{` 95 % CI ${formatInterval(step.interval)}`}</span>}
      </p>
    </section>
  );
}
