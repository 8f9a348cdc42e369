import { formatDuration, formatShare } from "../format";
import type { PageData } from "../page_data";
import { Bar, lengthOf } from "../parts/stack";
import { Term } from "../parts/term";
import { stackOf } from "../step_parts";

const SIDES: Record<string, string> = {
  host: "CPU time per step",
  device: "GPU time per step",
};

/** A part that takes less of a step is in the whole list only. */
const LEAST_SHARE = 0.001;

/** What bounds the run: a step of its host, or of its device, as one bar. */
export function BoundLedger({ page: { ledgers, overview } }: { page: PageData }) {
  const side = overview.bound_side;
  const run = ledgers.find(({ is_run: isRun }) => isRun);
  const parts = stackOf((side === "device" ? run?.device : side && run?.host) || []);
  const shown = parts.filter(({ share }) => (share ?? 0) >= LEAST_SHARE || (share ?? 0) <= -LEAST_SHARE);
  const unknown = parts.filter(({ value, isPhase }) => value === null && isPhase);
  if (!side || !shown.length) return null;
  return (
    <section class="bound-ledger" aria-labelledby="bound-title">
      <h2 id="bound-title">{[SIDES[side], overview.bound].filter(Boolean).join(": ")}</h2>
      <Bar parts={parts} longest={lengthOf(parts.filter(({ value }) => (value ?? 0) > 0))} />
      <ul>
        {shown.map(({ name, value, share, colour }) => (
          <li key={name}>
            <span class="swatch" style={{ background: colour }} aria-hidden="true" />
            <Term>{name}</Term> <strong>{formatShare(share)}</strong> <span class="quiet">{formatDuration(value)}</span>
          </li>
        ))}
        {unknown.length > 0 && (
          <li class="quiet">{`Unknown: ${unknown.map(({ name }) => name.toLowerCase()).join(", ")}`}</li>
        )}
      </ul>
    </section>
  );
}
