import { AllSteps } from "../overview/all_steps";
import { Breakdowns } from "../overview/breakdowns";
import { Findings } from "../overview/findings";
import { Hero } from "../overview/hero";
import { RunFacts } from "../overview/run_facts";
import { SlowSteps } from "../overview/slow_steps";
import { StepPicture } from "../overview/step_picture";
import { TopCalls } from "../overview/top_calls";
import type { Overview as OverviewData } from "../page_data";
import { Devices } from "../ranks/devices";
import type { ViewProps } from "../view";
import "./overview.css";

/** Overview: key figures, time breakdowns and findings. */
export function Overview({ payload, offered }: ViewProps) {
  const { page } = payload;
  const { report } = page;
  if (!report) return null;
  const { run } = report;
  return (
    <>
      <Hero page={page} report={report} />
      <Breakdowns page={page} />
      {report.findings.length > 0 ? (
        <Findings page={page} findings={report.findings} offered={offered} />
      ) : (
        <NoFindings hasSteps={report.steps.length > 0} overview={page.overview} />
      )}
      {run.all_steps && <AllSteps summary={page.overview.all_steps} pieces={run.all_steps.pieces} />}
      {run.slow_steps.length > 0 && <SlowSteps rows={run.slow_steps} />}
      {report.steps.length > 0 ? <StepPicture payload={payload} /> : <Devices page={page} />}
      <div class="halves">
        {page.top_calls && <TopCalls calls={page.top_calls} />}
        <RunFacts page={page} report={report} />
      </div>
    </>
  );
}

function NoFindings({ hasSteps, overview }: { hasSteps: boolean; overview: OverviewData }) {
  return (
    <section aria-labelledby="findings-title">
      <h2 id="findings-title">Findings</h2>
      {overview.no_findings.slice(1).map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
      <p>
        {hasSteps
          ? "To go further, start with the largest part of a step and the operators and kernels in it."
          : "Findings need steps. Record with kinetoscope.profile(...), or call step() of torch.profiler after each batch; or name the spans that are steps: kinetoscope report PATH --step SPAN."}
      </p>
    </section>
  );
}
