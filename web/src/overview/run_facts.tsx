import { formatBytes, formatCount, formatDuration, formatOperations, formatShare } from "../format";
import type { PageData, RunReport } from "../page_data";
import { Name } from "../parts/name";

interface RunFactsProps {
  page: PageData;
  report: RunReport;
  stepNs: number | null;
}

/** What was recorded, where, how exactly, and at what cost; and what the reader should know about it. */
export function RunFacts({ page, report, stepNs }: RunFactsProps) {
  const notes = [...report.run.notes, ...(page.timeline?.notes ?? [])];
  return (
    <section class="run-facts" aria-labelledby="run-facts-title">
      <h2 id="run-facts-title">About this run</h2>
      <dl class="facts-list">
        {facts(page, report, stepNs).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Name text={value} />
            </dd>
          </div>
        ))}
      </dl>
      {notes.length > 0 && (
        <ul class="notes">
          {notes.map((note) => (
            <li key={note}>
              <Name text={note} most={600} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function facts(page: PageData, report: RunReport, stepNs: number | null): [string, string][] {
  const { run, ranks } = report;
  const cost = page.profiler_ns_per_step;
  const found: [string, string | null][] = [
    ["Run", run.name],
    ["Recorded", recordedAt(page.origin_ns)],
    ["Ranks", ranksSaid(run.ranks, run.world_size)],
    ["Hosts", run.hosts.join(", ")],
    ["Devices", [...new Set(ranks.map((row) => row.device_name ?? ""))].filter(Boolean).join(", ")],
    ["Steps recorded", formatCount(run.num_steps)],
    ["A rank computes", computedSaid(run)],
    ["MFU", run.mfu === null ? null : `${formatShare(run.mfu)} of the devices' peak`],
    ["Clocks", clocks(ranks)],
    ["Profiler's own cost", cost === null ? null : costSaid(cost, stepNs)],
    ["Most memory", mostMemory(report)],
    ["Written by", `Kinetoscope ${page.version}`],
  ];
  return found.filter((fact): fact is [string, string] => Boolean(fact[1]));
}

/** In the reader's own time zone. */
function recordedAt(originNs: string): string | null {
  const milliseconds = Number(BigInt(originNs) / 1_000_000n);
  if (milliseconds < 1e12) return null; // its clock was not the world's
  return new Date(milliseconds).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "long" });
}

function ranksSaid(ranks: number[], worldSize: number | null): string | null {
  if (!ranks.length) return null;
  const of = worldSize === null ? "" : ` of ${worldSize}`;
  return `${ranks.length}${of}`;
}

function clocks(ranks: RunReport["ranks"]): string | null {
  const bounds = ranks.flatMap((row) => row.clock_bound_ns ?? []);
  if (new Set(ranks.map((row) => row.rank)).size < 2 || !bounds.length) return null;
  const bound = Math.max(...bounds);
  return bound ? `agree within ${formatDuration(bound)}` : "all ranks have the same";
}

function costSaid(cost: number, stepNs: number | null): string {
  return `${formatDuration(cost)} a step${stepNs ? ` (${formatShare(cost / stepNs)})` : ""}`;
}

function computedSaid(run: RunReport["run"]): string | null {
  if (run.flops_per_step === null || run.flops_per_s === null) return null;
  return `${formatOperations(run.flops_per_step)} a step, ${formatOperations(run.flops_per_s)}/s`;
}

function mostMemory(report: RunReport): string | null {
  const most = report.memory.reduce<RunReport["memory"][number] | null>(
    (most, row) => (most && most.peak_bytes >= row.peak_bytes ? most : row),
    null,
  );
  return most && `${formatBytes(most.peak_bytes)}${most.rank === null ? "" : `, rank ${most.rank}`}`;
}
