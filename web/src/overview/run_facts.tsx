import { formatDate, formatDuration, formatOperations, formatShare } from "../format";
import type { PageData, RunReport } from "../page_data";
import { Name } from "../parts/name";
import { Prose } from "../parts/prose";
import { Term } from "../parts/term";

interface RunFactsProps {
  page: PageData;
  report: RunReport;
}

/** Facts about the recording that the header does not have, and notes. */
export function RunFacts({ page, report }: RunFactsProps) {
  const notes = [
    ...report.run.notes.filter((note) => !page.overview.warnings.includes(note)),
    ...(page.timeline?.notes ?? []),
  ];
  return (
    <section class="run-facts" aria-labelledby="run-facts-title">
      <h2 id="run-facts-title">About this run</h2>
      <dl class="facts-list">
        {facts(page, report).map(([name, value]) => (
          <div key={name}>
            <dt>
              <Term>{name}</Term>
            </dt>
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
              <Prose text={note} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function facts(page: PageData, report: RunReport): [string, string][] {
  const { run } = report;
  const cost = page.profiler_ns_per_step;
  const found: [string, string | null][] = [
    ["Run", run.name === page.title ? null : run.name],
    ["Recorded", formatDate(page.origin_ns)],
    ["Hosts", run.hosts.join(", ")],
    ["Compute per rank", formatComputation(run)],
    ["MFU", formatMfu(run)],
    ["Profiler overhead", cost === null ? null : formatCost(cost, page)],
    ["Written by", `Kinetoscope ${page.version}`],
  ];
  return found.filter((fact): fact is [string, string] => Boolean(fact[1]));
}

function formatCost(
  cost: number,
  { overview: { profiler_share: share }, profiler_ns_around: around }: PageData,
): string {
  const ofStep = share === null ? "" : ` (${formatShare(share)})`;
  return `${formatDuration(cost)}/step${ofStep}${around ? `; ${formatDuration(around)} around the steps of a window` : ""}`;
}

function formatComputation(run: RunReport["run"]): string | null {
  if (run.flops_per_step === null) return null;
  const rate = run.flops_per_s === null ? "FLOP/s unknown" : `${formatOperations(run.flops_per_s)}/s`;
  return `${formatOperations(run.flops_per_step)}/step, ${rate}`;
}

function formatMfu({ flops_per_step, mfu, mfu_coverage }: RunReport["run"]): string | null {
  if (flops_per_step === null || (mfu === null && mfu_coverage === null)) return null;
  const covered = mfu_coverage === null ? "" : `; covers ${formatShare(mfu_coverage)} of matmul time`;
  return `${mfu === null ? "unknown" : `${formatShare(mfu)} of the GPU's peak`}${covered}`;
}
