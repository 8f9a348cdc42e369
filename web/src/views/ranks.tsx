import { Devices } from "../ranks/devices";
import { StepMap } from "../ranks/step_map";
import { RankWaits } from "../ranks/rank_waits";
import type { ViewProps } from "../view";

/** Differences between ranks: their steps, their waits for each other, and the use of their GPUs. */
export function Ranks({ payload }: ViewProps) {
  const { page } = payload;
  const { report } = page;
  if (!report) return null;
  return (
    <>
      {report.steps.length > 0 && <StepMap payload={payload} report={report} />}
      <div class="halves">
        <RankWaits page={page} report={report} />
        <Devices page={page} />
      </div>
    </>
  );
}
