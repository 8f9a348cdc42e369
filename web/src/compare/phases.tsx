/** The time breakdowns of both runs as bars with one scale, and the change of each part. */
import { formatChange, formatDuration } from "../format";
import type { ComparedPart, ComparedSide, Comparison } from "../page_data";
import { Bar, type StackPart } from "../parts/stack";
import { Swatch } from "../parts/swatch";
import { Term } from "../parts/term";
import { toStackParts } from "../step_breakdowns";
import { labelOf } from "./labels";

export function Phases({ sides, comparison }: { sides: ComparedSide[]; comparison: Comparison }) {
  return (
    <div class="breakdowns">
      {sides.map((side) => (
        <Side key={side.label} side={side} comparison={comparison} />
      ))}
    </div>
  );
}

function Side({ side: { label, max_total_ns, parts }, comparison }: { side: ComparedSide; comparison: Comparison }) {
  const runs = [
    { title: "Before", stepNs: comparison.before.step_ns, stack: stackOf(parts, "before_ns") },
    { title: "After", stepNs: comparison.after.step_ns, stack: stackOf(parts, "after_ns") },
  ];
  const shown = parts.map((part, at) => ({ part, ...runs[0].stack[at] })).filter(({ part }) => part.is_shown);
  return (
    <section class="breakdown" aria-label={`${label} time per step, before and after`}>
      <h2>{label}</h2>
      <dl class="aligned-bars">
        {runs.map(({ title, stepNs, stack }) => (
          <div key={title}>
            <dt>{title}</dt>
            <dd>
              <Bar parts={stack} longest={max_total_ns} />
            </dd>
            <dd class="number">{`mean ${formatDuration(stepNs)}`}</dd>
          </div>
        ))}
      </dl>
      <ul class="part-list part-changes">
        {shown.map(({ part, name, colour }) => (
          <li key={name}>
            <Swatch colour={colour} />
            <Term>{name}</Term>
            {` ${formatDuration(part.before_ns)} → ${formatDuration(part.after_ns)} `}
            <Change part={part} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function stackOf(parts: ComparedPart[], time: "before_ns" | "after_ns"): StackPart[] {
  return toStackParts(
    parts.map(({ part, label, ...both }) => ({ part, label, time_ns: both[time], share: null, is_phase: false })),
  );
}

/** The change of a part; the verdict where it is not significant. */
function Change({ part: { change, verdict } }: { part: ComparedPart }) {
  if (verdict === null) return null;
  const isChanged = verdict === "slower" || verdict === "faster";
  if (!isChanged || change === null) return <span class="quiet">{labelOf(verdict)}</span>;
  return <strong class={`verdict ${verdict}`}>{formatChange(change)}</strong>;
}
