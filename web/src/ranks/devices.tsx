import { useState } from "preact/hooks";
import { formatDuration } from "../format";
import type { DeviceTimes, PageData } from "../page_data";
import { describeColumn } from "../parts/columns";
import { Legend } from "../parts/legend";
import { Stack } from "../parts/stack";
import { toStackParts } from "../step_breakdowns";

/** Use of each rank's GPU, with reasons for idle time. */
export function Devices({ page: { devices } }: { page: Pick<PageData, "devices"> }) {
  const [shown, setShown] = useState<number | null>(null);
  const [mean, ...each] = devices.map((one) => {
    const [title, timeNs, parts] = [titleOf(one, devices), one.window_ns, toStackParts(one.parts)];
    return {
      title,
      timeNs,
      parts,
      length: formatDuration(timeNs),
      description: describeColumn({ title, timeNs, parts }),
    };
  });
  if (!mean) return <NoDevice />;
  const { title, length, parts } = shown === null ? mean : each[shown];
  return (
    <section aria-labelledby="devices-title">
      <h2 id="devices-title">GPU time by rank</h2>
      <div class="numbers">
        <Legend title={`${title}: ${length}`} noun="Use" parts={parts} />
      </div>
      <Stack label="GPU time by rank" bars={each} shown={shown} onShow={setShown} />
    </section>
  );
}

function NoDevice() {
  return (
    <section aria-labelledby="devices-title">
      <h2 id="devices-title">GPU time by rank</h2>
      <p class="quiet">No GPU work was recorded: all times are CPU times.</p>
    </section>
  );
}

function titleOf({ rank, device, is_mean: isMean }: DeviceTimes, all: DeviceTimes[]): string {
  if (isMean) return "Mean of all GPUs";
  const isOnly = all.filter((other) => !other.is_mean && other.rank === rank).length === 1;
  const title = rank === null ? "Device" : `Rank ${rank}`;
  return isOnly ? title : `${title}, ${device ?? "–"}`;
}
