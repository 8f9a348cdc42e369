import { useMemo, useState } from "preact/hooks";
import { formatDuration } from "../format";
import { readLink, remember } from "../link";
import type { PageData, RankRow } from "../page_data";
import { Columns, saysOf } from "../parts/columns";
import { Legend } from "../parts/legend";
import { Stack, type StackPart } from "../parts/stack";
import type { Payload } from "../payload";
import { stepPlace } from "../places";
import { deviceParts, hostParts, meanSteps, rankSteps, shownParts, type LedgerStep } from "../step_parts";

const ALL = "all";

/** A step, and what its host and its device did in it. */
interface Ledgers {
  title: string;
  timeNs: number;
  parts: StackPart[];
  below: StackPart[] | null;
  /** A single step's ledgers: the device's is no part of the time on the host. */
  isSingle?: boolean;
}

/** Where a step's time goes: of each rank on average, and of each step. */
export function StepPicture({ payload }: { payload: Payload }) {
  const { page } = payload;
  const ranks = useMemo(() => rankLedgers(page), [page]);
  const [rank, setRank] = useState(() => readLink().steprank ?? ALL);
  const [shown, setShown] = useState<{ of: "rank" | "step"; at: number } | null>(null);
  const steps = useMemo(() => stepLedgers(payload, rank), [payload, rank]);
  const choose = (rank: string) => {
    setRank(rank);
    remember({ steprank: rank === ALL ? undefined : rank });
  };
  const bars = ranks.map(({ ledgers }) => barOf(ledgers));
  const pointed = shown && (shown.of === "rank" ? ranks[shown.at]?.ledgers : steps[shown.at]);
  const whole = useMemo(() => runLedgers(page), [page]);
  const names = ranks.map(({ rank }) => rank);
  return (
    <section class="step-picture" aria-labelledby="step-picture-title">
      <h2 id="step-picture-title">Where a step's time goes</h2>
      <Numbers of={pointed ?? whole} />
      <div>
        <h3>By rank</h3>
        <Stack
          label="A step of each rank"
          bars={bars}
          shown={shown?.of === "rank" ? shown.at : null}
          onShow={(at) => setShown(at === null ? null : { of: "rank", at })}
          onChoose={(at) => choose(String(names[at]))}
        />
        <div class="by-step">
          <h3>By step, on the host</h3>
          {ranks.length > 1 && <RankChoice ranks={names} chosen={rank} onChoose={choose} />}
        </div>
        <Columns
          label="Steps; Enter shows one in the timeline"
          columns={steps}
          shown={shown?.of === "step" ? shown.at : null}
          onShow={(at) => setShown(at === null ? null : { of: "step", at })}
          onChoose={(at) => goTo(steps[at]?.step, rank, payload)}
        />
      </div>
    </section>
  );
}

function Numbers({ of: { title, timeNs, parts, below, isSingle } }: { of: Ledgers }) {
  return (
    <div class="numbers">
      <Legend title={`${title}: ${formatDuration(timeNs)}`} noun="Part" whole={timeNs} parts={parts} />
      {below && <Legend title="Its device" noun="Use" whole={isSingle ? null : timeNs} parts={below} />}
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

/** Shows a step in the timeline: of the chosen rank, or of the one on which it takes longest. */
function goTo(step: number | undefined, rank: string, payload: Payload): void {
  const steps = rankSteps(payload).filter(
    ({ row }) => row.step === step && (rank === ALL || String(row.rank) === rank),
  );
  const [longest] = steps.sort((one, other) => other.row.duration_ns - one.row.duration_ns);
  const place = longest && stepPlace(longest.row, payload.page);
  if (place) location.hash = place.href;
}

function barOf({ title, timeNs, parts, below }: Ledgers) {
  const device = below ? ` ${saysOf({ title: "Its device", timeNs, parts: below })}` : "";
  return {
    ...{ title, parts, below: below ?? undefined },
    length: formatDuration(timeNs),
    says: `${saysOf({ title, timeNs, parts })}.${device}`,
  };
}

/** The step of the run. */
function runLedgers({ report }: PageData): Ledgers {
  const { step_ns, parts, ranks } = report!.run;
  const title = ranks.length > 1 ? "All ranks, on average" : "On average";
  return ledgersOf(title, step_ns, parts);
}

function ledgersOf(title: string, stepNs: number | null, parts: RankRow["parts"]): Ledgers {
  const [host] = shownParts([hostParts({ ...parts?.host })]);
  const below = parts?.device ? shownParts([deviceParts({ ...parts.device })])[0] : null;
  return { title, timeNs: stepNs ?? 0, parts: host, below };
}

/** The step of each rank; a rank with several devices has it in each of its rows. */
function rankLedgers({ report }: PageData): { rank: number | null; ledgers: Ledgers }[] {
  const rows = new Map((report?.ranks ?? []).map((row) => [row.rank, row]));
  return [...rows.values()]
    .filter((row) => row.parts !== null)
    .map((row) => ({
      rank: row.rank,
      ledgers: ledgersOf(row.rank === null ? "All" : `Rank ${row.rank}`, row.step_ns, row.parts),
    }));
}

/** Single steps: of one rank, or the means of all. */
function stepLedgers(payload: Payload, rank: string): (Ledgers & { step: number })[] {
  const own: LedgerStep[] = rankSteps(payload).filter(({ row }) => String(row.rank) === rank);
  const steps = rank === ALL || !own.length ? meanSteps(payload) : own;
  const host = shownParts(steps.map((step) => step.host));
  return steps.map(({ step, timeNs, device }, at) => ({
    ...{ step, timeNs, title: `Step ${step}`, parts: host[at], below: device, isSingle: true },
  }));
}
