import { formatBytes, formatCount, formatDuration, formatShare } from "../format";
import type { Overview, PageData, RunReport } from "../page_data";
import { Name } from "../parts/name";
import { Term } from "../parts/term";
import { BoundLedger } from "./bound_ledger";

interface HeadlineProps {
  page: PageData;
  report: RunReport;
}

/** A number and its unit stay on one line. */
const unbroken = (text: string) => text.replace(/(\d) (?=[a-zµ%])/g, "$1\u00a0");

/** What a reader takes away in ten seconds. */
export function Headline({ page, report }: HeadlineProps) {
  const { overview } = page;
  const tiles = [
    stepTile(report, overview),
    throughputTile(report),
    deviceTile(overview),
    stragglerTile(report),
    memoryTile(overview),
  ];
  return (
    <>
      <p class="headline">
        <Name text={unbroken(sentence(report, overview))} most={400} />
      </p>
      <div class="first-row">
        <BoundLedger page={page} />
        <dl class="tiles">
          {tiles.map(
            (tile) =>
              tile && (
                <div key={tile.name}>
                  <dt>
                    <Term>{tile.name}</Term>
                  </dt>
                  <dd>
                    <strong>{unbroken(tile.value)}</strong> <span class="quiet">{unbroken(tile.more)}</span>
                  </dd>
                </div>
              ),
          )}
        </dl>
      </div>
    </>
  );
}

interface Tile {
  name: string;
  value: string;
  more: string;
}

function sentence(report: RunReport, overview: Overview): string {
  const { step_ns: stepNs } = report.run;
  if (stepNs === null) return "No step was recorded, so this report cannot say what a step costs.";
  const [worst] = report.findings;
  const step = `A recorded step takes ${formatDuration(stepNs)}${overview.bound ? `, ${overview.bound}` : ""}.`;
  if (!worst) return `${step} ${overview.no_findings[0] ?? ""}`;
  const isSure = report.findings.some((finding) => finding.confidence !== "low");
  const first = isSure ? "Top finding:" : "No finding is certain. Check first:";
  const [saving, share] = [worst.saving_ns_per_step, overview.savings[0]];
  const saved = saving === null ? "" : ` Estimated saving: ${formatDuration(saving)}/step (${formatShare(share)}).`;
  return `${step} ${first} ${worst.title.replace(/\.$/, "")}.${saved}`;
}

function stepTile({ run }: RunReport, overview: Overview): Tile | null {
  if (run.step_ns === null) return null;
  return { name: "A recorded step", value: formatDuration(run.step_ns), more: overview.bound ?? "" };
}

/** As a rank's loop counts them: of tokens first, where it counts both. */
function throughputTile({ run: { samples_per_s: samples, tokens_per_s: tokens } }: RunReport): Tile | null {
  const told = [
    ...(tokens === null ? [] : [`${formatCount(tokens)} tokens/s`]),
    ...(samples === null ? [] : [`${formatCount(samples)} samples/s`]),
  ];
  return told.length ? { name: "A rank's throughput", value: told[0], more: told[1] ?? "" } : null;
}

function deviceTile({ busy_share, num_devices, least_busy, least_busy_share }: Overview): Tile | null {
  if (busy_share === null) return null;
  const more = num_devices > 1 ? `least on ${least_busy}: ${formatShare(least_busy_share)}` : "of the recorded windows";
  return { name: "Device busy", value: formatShare(busy_share), more };
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

function memoryTile({ peak_bytes, peak_rank, peak_growth_bytes }: Overview): Tile | null {
  if (peak_bytes === null) return null;
  const grows = peak_growth_bytes && peak_growth_bytes > 0 ? `, grows by ${formatBytes(peak_growth_bytes)} a step` : "";
  return {
    name: "Most memory",
    value: formatBytes(peak_bytes),
    more: `${peak_rank === null ? "" : `rank ${peak_rank}`}${grows}`,
  };
}
