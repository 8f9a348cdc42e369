import { formatBytes, formatDuration, formatShare } from "../format";
import type { RunReport } from "../page_data";
import { Name } from "../parts/name";
import { meanParts, PHASE_TITLES, rankSteps, sumOf, type Phase } from "../step_parts";

interface HeadlineProps {
  report: RunReport;
  stepNs: number | null;
}

/** A number and its unit stay on one line. */
const unbroken = (text: string) => text.replace(/(\d) (?=[a-zµ%])/g, "$1\u00a0");

/** What a reader takes away in ten seconds. */
export function Headline({ report, stepNs }: HeadlineProps) {
  const tiles = [
    stepTile(report, stepNs),
    partTile(report),
    deviceTile(report),
    stragglerTile(report),
    memoryTile(report),
  ];
  return (
    <>
      <p class="headline">
        <Name text={unbroken(sentence(report, stepNs))} most={400} />
      </p>
      <dl class="tiles">
        {tiles.map(
          (tile) =>
            tile && (
              <div key={tile.name}>
                <dt>{tile.name}</dt>
                <dd>
                  <strong>{tile.value}</strong> <span class="quiet">{unbroken(tile.more)}</span>
                </dd>
              </div>
            ),
        )}
      </dl>
    </>
  );
}

interface Tile {
  name: string;
  value: string;
  more: string;
}

function sentence(report: RunReport, stepNs: number | null): string {
  if (!report.steps.length || !stepNs) return "No step was recorded, so this report cannot say what a step costs.";
  const [worst] = report.findings;
  const step = `A step takes ${formatDuration(stepNs)}.`;
  if (!worst) return `${step} No fault was found.`;
  const isSure = report.findings.some((finding) => finding.confidence !== "low");
  const first = isSure ? "Change first:" : "No fault is certain. Look first at:";
  const saving = worst.saving_ns_per_step;
  const saved =
    saving === null ? "" : ` Mending that saves ${formatDuration(saving)} (${formatShare(saving / stepNs)}) of each.`;
  return `${step} ${first} ${worst.title.replace(/\.$/, "")}.${saved}`;
}

function stepTile({ steps }: RunReport, stepNs: number | null): Tile | null {
  const lengths = rankSteps(steps).map((step) => sumOf(step.parts));
  if (!lengths.length) return null;
  const shortest = lengths.reduce((one, other) => Math.min(one, other));
  const longest = lengths.reduce((one, other) => Math.max(one, other));
  return {
    name: "A step",
    value: formatDuration(stepNs),
    more: range(formatDuration(shortest), formatDuration(longest)),
  };
}

/** "2.78 to 5.18 ms": a unit of both is said once. */
function range(from: string, to: string): string {
  const [number, unit] = from.split(" ");
  return `${to.endsWith(` ${unit}`) ? number : from} to ${to}`;
}

function partTile({ steps }: RunReport): Tile | null {
  const parts = meanParts(rankSteps(steps).map((step) => step.parts));
  if (!parts) return null;
  const [largest] = (Object.keys(parts) as Phase[]).sort((one, other) => parts[other] - parts[one]);
  const share = formatShare(parts[largest] / sumOf(parts));
  return { name: "Largest part of it", value: share, more: PHASE_TITLES[largest].toLowerCase() };
}

function deviceTile({ ranks }: RunReport): Tile | null {
  const shares = ranks.flatMap((row) =>
    row.busy_ns === null || !row.window_ns ? [] : [{ rank: row.rank, share: row.busy_ns / row.window_ns }],
  );
  if (!shares.length) return null;
  const mean = shares.reduce((sum, { share }) => sum + share, 0) / shares.length;
  const least = shares.reduce((one, other) => (other.share < one.share ? other : one));
  const more = shares.length > 1 ? `least on rank ${least.rank}: ${formatShare(least.share)}` : "of the time";
  return { name: "Device busy", value: formatShare(mean), more };
}

function stragglerTile({ stragglers }: RunReport): Tile | null {
  const [worst] = stragglers;
  if (!worst) return null;
  return {
    name: "Ranks wait for",
    value: `rank ${worst.rank}`,
    more: `${formatDuration(worst.cost_ns_per_step)} a step`,
  };
}

function memoryTile({ memory }: RunReport): Tile | null {
  if (!memory.length) return null;
  const most = memory.reduce((one, other) => (other.peak_bytes > one.peak_bytes ? other : one));
  const growth = most.growth_bytes_per_step;
  const grows = growth && growth > 0 ? `, grows by ${formatBytes(growth)} a step` : "";
  return {
    name: "Most memory",
    value: formatBytes(most.peak_bytes),
    more: `${most.rank === null ? "" : `rank ${most.rank}`}${grows}`,
  };
}
