import type { BreakdownPart, PageData } from "../page_data";
import { PartList } from "../parts/part_list";
import { Bar, lengthOf } from "../parts/stack";
import { toStackParts } from "../step_breakdowns";
import "./breakdowns.css";

const SIDES = { host: "CPU", device: "GPU" };

/** Smaller parts are only in the tables of ranks and steps. */
const MIN_SHARE = 0.001;

/** Time breakdowns of a step, one stacked bar each. */
export function Breakdowns({ page: { breakdowns } }: { page: Pick<PageData, "breakdowns"> }) {
  const run = breakdowns.find(({ is_run: isRun }) => isRun);
  if (!run) return null;
  return (
    <div class="breakdowns">
      <Breakdown side="host" parts={run.host} />
      {run.device && <Breakdown side="device" parts={run.device} />}
    </div>
  );
}

function Breakdown({ side, parts: breakdown }: { side: keyof typeof SIDES; parts: BreakdownPart[] }) {
  const parts = toStackParts(breakdown);
  const shown = parts.filter(({ share }) => (share ?? 0) >= MIN_SHARE || (share ?? 0) <= -MIN_SHARE);
  const unknown = parts.filter(({ value, isPhase }) => value === null && isPhase);
  if (!shown.length) return null;
  return (
    <section class="breakdown" aria-label={`${SIDES[side]} time per step`}>
      <h2>{SIDES[side]}</h2>
      <Bar parts={parts} longest={lengthOf(parts.filter(({ value }) => (value ?? 0) > 0))} />
      <PartList parts={shown}>
        {unknown.length > 0 && (
          <li class="quiet">{`Unknown: ${unknown.map(({ name }) => name.toLowerCase()).join(", ")}`}</li>
        )}
      </PartList>
    </section>
  );
}
