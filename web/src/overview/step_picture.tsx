import { useMemo, useState } from "preact/hooks";
import { formatDuration } from "../format";
import { readLink, updateLink } from "../link";
import type { RankBreakdown } from "../page_data";
import { Columns, describeColumn } from "../parts/columns";
import { Legend } from "../parts/legend";
import { numShownFirst, Stack, type StackPart } from "../parts/stack";
import type { Payload } from "../payload";
import { linkToStep } from "../view_links";
import { meanSteps, rankSteps, shownParts, toStackParts, type StepParts } from "../step_breakdowns";

const ALL = "all";

type Shown = "rank" | "step";

/** A time breakdown with its title, and that of the GPU `below`. */
interface ShownBreakdown {
  title: string;
  timeNs: number | null;
  parts: StackPart[];
  below: StackPart[] | null;
  /** The rank or step number. */
  rank: number | null;
  number: number;
  standsOut: boolean;
}

/** Time breakdowns by rank, and by step. */
export function StepPicture({ payload }: { payload: Payload }) {
  const [rank, setRank] = useState(() => readLink().steprank ?? ALL);
  const [shown, setShown] = useState<{ of: Shown; at: number } | null>(null);
  const { ranks, steps } = useMemo(() => picture(payload, rank), [payload, rank]);
  // A pointer that leaves a rank does not deselect a step that keys have selected since.
  const show = (of: Shown) => (at: number | null) =>
    setShown((was) => (at !== null ? { of, at } : was?.of === of ? null : was));
  const choose = (rank: string) => {
    setRank(rank);
    updateLink({ steprank: rank === ALL ? undefined : rank });
  };
  const numFirst = numShownFirst(ranks);
  const pointed = (shown && (shown.of === "rank" ? ranks : steps)[shown.at]) ?? slowestOf(steps);
  const isByDevice = payload.page.overview.bound_side === "device" && steps.every(({ below }) => below !== null);
  const side = isByDevice ? "GPU" : "CPU";
  const names = ranks.map(({ rank }) => rank);
  return (
    <section class="step-picture" aria-labelledby="step-picture-title">
      <h2 id="step-picture-title">{ranks.length > 1 ? "Profiled steps" : `Profiled steps, on the ${side}`}</h2>
      {pointed && <Numbers of={pointed} />}
      <div>
        {ranks.length > 1 && (
          <>
            <h3>{numFirst < ranks.length ? "By rank, unusual ones first" : "By rank"}</h3>
            <Stack
              label="Step time by rank"
              bars={ranks.map(barOf)}
              shown={shown?.of === "rank" ? shown.at : null}
              onShow={show("rank")}
              onChoose={(at) => choose(String(names[at]))}
              numFirst={numFirst}
              noun="rank"
            />
          </>
        )}
        {ranks.length > 1 && (
          <div class="by-step">
            <h3>{`By step, on the ${side}`}</h3>
            <RankChoice
              ranks={[...names].sort((one, other) => (one ?? -1) - (other ?? -1))}
              chosen={rank}
              onChoose={choose}
            />
          </div>
        )}
        <Columns
          label="Steps; Enter shows one in the timeline"
          noun="step"
          columns={isByDevice ? steps.map((step) => ({ ...step, parts: step.below ?? [] })) : steps}
          shown={shown?.of === "step" ? shown.at : null}
          onShow={show("step")}
          onChoose={(at) => goTo(steps[at]?.number, rank, payload)}
        />
      </div>
    </section>
  );
}

function Numbers({ of: { title, timeNs, parts, below } }: { of: ShownBreakdown }) {
  return (
    <div class="numbers">
      <Legend title={`${title}: ${formatDuration(timeNs)}`} noun="Part" parts={parts} />
      {below && <Legend title="GPU" noun="Use" parts={below} />}
    </div>
  );
}

/** The slowest step, whose numbers are shown while nothing is pointed at. */
function slowestOf(steps: ShownBreakdown[]): ShownBreakdown | undefined {
  const [slowest] = [...steps].sort((one, other) => (other.timeNs ?? 0) - (one.timeNs ?? 0));
  return slowest && { ...slowest, title: `${slowest.title}, the slowest` };
}

function RankChoice(props: { ranks: (number | null)[]; chosen: string; onChoose: (rank: string) => void }) {
  return (
    <select
      aria-label="Rank of the steps"
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

/** Show a step in the timeline: on the chosen rank, or on the slowest one. */
function goTo(step: number | undefined, rank: string, payload: Payload): void {
  const steps = rankSteps(payload).filter(
    ({ row }) => row.step === step && (rank === ALL || String(row.rank) === rank),
  );
  const [longest] = steps.sort((one, other) => other.row.duration_ns - one.row.duration_ns);
  const link = longest && linkToStep(longest.row, payload.page);
  if (link) location.hash = link.href;
}

function barOf({ title, timeNs, parts, below }: ShownBreakdown) {
  const device = below ? ` ${describeColumn({ title: "GPU", timeNs, parts: below })}` : "";
  return {
    ...{ title, parts, below: below ?? undefined },
    length: formatDuration(timeNs),
    description: `${describeColumn({ title, timeNs, parts })}.${device}`,
  };
}

interface Picture {
  ranks: ShownBreakdown[];
  steps: ShownBreakdown[];
}

/** The breakdowns of ranks and steps with the same parts, so that the legend does not move. */
function picture(payload: Payload, rank: string): Picture {
  const ranks = payload.page.breakdowns.filter(({ is_run: isRun }) => !isRun).map(toShownBreakdown);
  const all = [...ranks, ...stepBreakdowns(payload, rank)];
  const hosts = shownParts(all.map(({ parts }) => parts));
  const devices = shownParts(all.flatMap(({ below }) => (below ? [below] : [])));
  const alike = all.map((breakdown, at) => ({
    ...breakdown,
    parts: hosts[at],
    below: breakdown.below && (devices.shift() ?? null),
  }));
  return { ranks: alike.slice(0, ranks.length), steps: alike.slice(ranks.length) };
}

/** The breakdown of a rank. */
function toShownBreakdown({
  rank,
  step_ns: timeNs,
  host,
  device,
  stands_out: standsOut,
}: RankBreakdown): ShownBreakdown {
  const title = rank === null ? "All" : `Rank ${rank}`;
  return {
    title,
    timeNs,
    parts: toStackParts(host),
    below: device && toStackParts(device),
    rank,
    number: 0,
    standsOut,
  };
}

/** The breakdowns of single steps: of one rank, or the means of all. */
function stepBreakdowns(payload: Payload, rank: string): ShownBreakdown[] {
  const own: StepParts[] = rankSteps(payload).filter(({ row }) => String(row.rank) === rank);
  const steps = rank === ALL || !own.length ? meanSteps(payload) : own;
  return steps.map(({ step, timeNs, host, device }) => ({
    ...{ title: `Step ${step}`, timeNs, parts: host, below: device, rank: null, number: step, standsOut: false },
  }));
}
