import { savesVerb } from "../evidence";
import { formatBytes, formatCount, formatDuration, formatShare } from "../format";
import type { Overview, PageData, RunReport } from "../page_data";
import { Term } from "../parts/term";

/** Smaller savings are 0 % of a step with one decimal. */
const MIN_SAVING_SHARE = 0.0005;

interface HeroProps {
  page: PageData;
  report: RunReport;
}

/** Key figures: the step time, its bound, the share that the first fix saves, throughput and memory. */
export function Hero({ page, report }: HeroProps) {
  const { overview } = page;
  const { step_ns: stepNs } = report.run;
  return (
    <section class="hero" aria-label="Key figures">
      {stepNs === null ? (
        <p class="hero-step">No step was recorded.</p>
      ) : (
        <p class="hero-step">
          <strong>{formatDuration(stepNs)}</strong> per step
          {overview.bound && <span class="hero-bound">{overview.bound}</span>}
        </p>
      )}
      <p class="hero-saving">{firstSaving(report, overview)}</p>
      <dl>
        {figures(page, report).map(([name, value]) => (
          <div key={name}>
            <dt>
              <Term>{name}</Term>
            </dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function firstSaving({ findings }: RunReport, overview: Overview) {
  const [first] = findings;
  if (!first) return overview.no_findings[0] ?? "";
  const isSure = findings.some((finding) => finding.confidence !== "low");
  const [savingNs, share] = [first.saving_ns_per_step, overview.savings[0]];
  if (savingNs === null) return isSure ? "The saving of the first fix is unknown." : "No finding is certain.";
  if (share !== null && share < MIN_SAVING_SHARE) return "The first fix saves nothing.";
  const saved = share === null ? `${formatDuration(savingNs)}/step` : `${formatShare(share)} of the step`;
  return (
    <>
      {isSure ? `The first fix ${savesVerb(first)} ` : "No finding is certain; the first fix may save "}
      <strong>{saved}</strong>
    </>
  );
}

/** Figures that neither the breakdowns nor the findings below contain. */
function figures({ overview, breakdowns }: PageData, { run, findings }: RunReport): [string, string][] {
  const hasDevice = breakdowns.some(({ device }) => device !== null);
  const hasGrowth = findings.some(({ kind }) => kind === "memory_growth" || kind === "memory_limit");
  const found: [string, string | null][] = [
    ["Throughput per rank", throughput(run)],
    ["GPU busy", hasDevice ? null : gpuBusy(overview)],
    ["Peak memory", peakMemory(overview, !hasGrowth)],
  ];
  return found.filter((figure): figure is [string, string] => figure[1] !== null);
}

/** Throughput, tokens first. */
function throughput({ samples_per_s: samples, tokens_per_s: tokens }: RunReport["run"]): string | null {
  const rates = [
    ...(tokens === null ? [] : [`${formatCount(tokens)} tokens/s`]),
    ...(samples === null ? [] : [`${formatCount(samples)} samples/s`]),
  ];
  return rates.length ? rates.join(", ") : null;
}

function gpuBusy({ busy_share, num_devices, min_busy_device, min_busy_share }: Overview): string | null {
  if (busy_share === null) return null;
  const least = num_devices > 1 ? `, least on ${min_busy_device}: ${formatShare(min_busy_share)}` : "";
  return `${formatShare(busy_share)}${least}`;
}

function peakMemory({ peak_bytes, peak_rank, peak_growth_bytes }: Overview, hasGrowth: boolean): string | null {
  if (peak_bytes === null) return null;
  const growth =
    hasGrowth && peak_growth_bytes && peak_growth_bytes > 0 ? `, +${formatBytes(peak_growth_bytes)}/step` : "";
  return `${formatBytes(peak_bytes)}${peak_rank === null ? "" : ` on rank ${peak_rank}`}${growth}`;
}
