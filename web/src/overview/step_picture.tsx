import { useMemo, useState } from "preact/hooks";
import { cssColour, DEVICE_COLOURS, PHASE_COLOURS } from "../colours";
import { formatDuration } from "../format";
import { readLink, remember } from "../link";
import type { PageData } from "../page_data";
import { Columns, saysOf } from "../parts/columns";
import { Legend } from "../parts/legend";
import { lengthOf, Stack, type StackPart } from "../parts/stack";
import { stepPlace } from "../places";
import { DEVICE_TITLES, meanParts, PHASE_TITLES, rankSteps, type Phase, type RankStep } from "../step_parts";

const ALL = "all";
/** A part that takes less of every rank's step is not in the picture. */
const SMALL_SHARE = 0.001;

/** Where a step's time goes: of each rank on average, and of each step. */
export function StepPicture({ page }: { page: PageData }) {
  const steps = useMemo(() => rankSteps(page.report?.steps ?? []), [page]);
  const phases = useMemo(() => largePhases(steps), [steps]);
  const ranks = useMemo(() => grouped(steps, (step) => step.row.rank), [steps]);
  const [rank, setRank] = useState(() => readLink().steprank ?? ALL);
  const [shown, setShown] = useState<{ of: "rank" | "step"; at: number } | null>(null);
  const chosen = [...ranks].find(([key]) => String(key) === rank)?.[1] ?? steps;
  const numbers = useMemo(() => grouped(chosen, (step) => step.row.step), [chosen]);
  const choose = (rank: string) => {
    setRank(rank);
    remember({ steprank: rank === ALL ? undefined : rank });
  };
  const bars = [...ranks].map(([rank, own]) => barOf(rank === null ? "All" : `Rank ${rank}`, own, phases));
  const columns = [...numbers].map(([step, own]) => ({ title: `Step ${step}`, parts: phaseParts(own, phases) }));
  const pointed = shown && (shown.of === "rank" ? bars[shown.at] : columns[shown.at]);
  const of = shown?.of === "rank" ? [...ranks.values()][shown.at] : shown ? [...numbers.values()][shown.at] : steps;
  return (
    <section class="step-picture" aria-labelledby="step-picture-title">
      <h2 id="step-picture-title">Where a step's time goes</h2>
      <Numbers
        title={pointed?.title ?? (ranks.size > 1 ? "All ranks, on average" : "On average")}
        of={of ?? steps}
        phases={phases}
      />
      <div>
        <h3>By rank</h3>
        <Stack
          label="A step of each rank"
          bars={bars}
          shown={shown?.of === "rank" ? shown.at : null}
          onShow={(at) => setShown(at === null ? null : { of: "rank", at })}
          onChoose={(at) => choose(String([...ranks.keys()][at]))}
        />
        <div class="by-step">
          <h3>By step</h3>
          {ranks.size > 1 && <RankChoice ranks={[...ranks.keys()]} chosen={rank} onChoose={choose} />}
        </div>
        <Columns
          label="Steps; Enter shows one in the timeline"
          columns={columns}
          shown={shown?.of === "step" ? shown.at : null}
          onShow={(at) => setShown(at === null ? null : { of: "step", at })}
          onChoose={(at) => goTo([...numbers.values()][at], page)}
        />
      </div>
    </section>
  );
}

function Numbers({ title, of, phases }: { title: string; of: RankStep[]; phases: Phase[] }) {
  const device = deviceParts(of);
  return (
    <div class="numbers">
      <Legend
        title={`${title}: ${formatDuration(lengthOf(phaseParts(of, phases)))}`}
        noun="Part"
        parts={phaseParts(of, phases)}
      />
      {device && <Legend title={`Its device: ${formatDuration(lengthOf(device))}`} noun="Use" parts={device} />}
    </div>
  );
}

function RankChoice(props: { ranks: (number | null)[]; chosen: string; onChoose: (rank: string) => void }) {
  return (
    <select
      aria-label="Steps of which rank"
      value={props.chosen}
      onChange={(event) => props.onChoose(event.currentTarget.value)}
    >
      <option value={ALL}>all ranks, on average</option>
      {props.ranks.map((rank) => (
        <option key={rank} value={String(rank)}>{`rank ${rank}`}</option>
      ))}
    </select>
  );
}

/** Shows the longest of some ranks' rows of one step in the timeline. */
function goTo(steps: RankStep[] | undefined, page: PageData): void {
  const [longest] = [...(steps ?? [])].sort((one, other) => other.row.duration_ns - one.row.duration_ns);
  const place = longest && stepPlace(longest.row, page);
  if (place) location.hash = place.href;
}

function barOf(title: string, steps: RankStep[], phases: Phase[]) {
  const parts = phaseParts(steps, phases);
  const below = deviceParts(steps) ?? undefined;
  const device = below ? ` ${saysOf({ title: "Its device", parts: below })}` : "";
  return {
    title,
    parts,
    below,
    length: formatDuration(lengthOf(parts)),
    says: `${saysOf({ title, parts })}.${device}`,
  };
}

function phaseParts(steps: RankStep[], phases: Phase[]): StackPart[] {
  const means = meanParts(steps.map((step) => step.parts));
  return phases.map((phase) => ({
    name: PHASE_TITLES[phase],
    value: means?.[phase] ?? 0,
    colour: cssColour(PHASE_COLOURS[phase]),
  }));
}

function deviceParts(steps: RankStep[]): StackPart[] | null {
  const means = meanParts(steps.flatMap((step) => step.device ?? []));
  if (!means) return null;
  return (["compute", "communication", "copy", "idle"] as const).map((use) => ({
    name: DEVICE_TITLES[use],
    value: means[use],
    colour: use === "idle" ? "var(--idle)" : cssColour(DEVICE_COLOURS[use]),
  }));
}

function largePhases(steps: RankStep[]): Phase[] {
  const whole = steps.reduce((sum, step) => sum + step.row.duration_ns, 0);
  const names = Object.keys(PHASE_TITLES) as Phase[];
  return names.filter((name) => steps.reduce((sum, step) => sum + step.parts[name], 0) > SMALL_SHARE * whole);
}

function grouped<Key, Value>(values: Value[], keyOf: (value: Value) => Key): Map<Key, Value[]> {
  const groups = new Map<Key, Value[]>();
  for (const value of values) {
    const key = keyOf(value);
    const group = groups.get(key);
    if (group) group.push(value);
    else groups.set(key, [value]);
  }
  return groups;
}
