import { useState } from "preact/hooks";
import { cssColour, DEVICE_COLOURS } from "../colours";
import { formatDuration } from "../format";
import type { RankRow } from "../page_data";
import { saysOf } from "../parts/columns";
import { Legend } from "../parts/legend";
import { lengthOf, Stack, type StackPart } from "../parts/stack";

/** What the device of each rank did, and why it was idle. */
export function Devices({ ranks }: { ranks: RankRow[] }) {
  const [shown, setShown] = useState<number | null>(null);
  const rows = ranks.filter((row) => row.window_ns !== null);
  if (!rows.length) return <NoDevice />;
  const bars = rows.map((row) => {
    const parts = partsOf(row);
    const title = titleOf(row, rows);
    return { title, parts, length: formatDuration(lengthOf(parts)), says: saysOf({ title, parts }) };
  });
  const mean = bars[0].parts.map((part, at) => ({ ...part, value: meanOf(bars.map((bar) => bar.parts[at].value)) }));
  const { title, parts } = shown === null ? { title: "All devices, on average", parts: mean } : bars[shown];
  return (
    <section aria-labelledby="devices-title">
      <h2 id="devices-title">What the devices did</h2>
      <div class="numbers">
        <Legend title={`${title}: ${formatDuration(lengthOf(parts))}`} noun="Use" parts={parts} />
      </div>
      <Stack label="The device of each rank" bars={bars} shown={shown} onShow={setShown} />
    </section>
  );
}

function NoDevice() {
  return (
    <section aria-labelledby="devices-title">
      <h2 id="devices-title">What the devices did</h2>
      <p class="quiet">No work of a device was recorded: all times are the host&apos;s.</p>
    </section>
  );
}

function partsOf(row: RankRow): StackPart[] {
  return [
    { name: "Computing", value: row.compute_ns ?? 0, colour: cssColour(DEVICE_COLOURS.compute) },
    {
      name: "Only communicating",
      value: row.exposed_communication_ns ?? 0,
      colour: cssColour(DEVICE_COLOURS.communication),
    },
    { name: "Only copying", value: row.exposed_copy_ns ?? 0, colour: cssColour(DEVICE_COLOURS.copy) },
    { name: "Idle: the host was late", value: row.idle_host_wait_ns ?? 0, colour: cssColour(7) },
    { name: "Idle between kernels", value: row.idle_kernel_wait_ns ?? 0, colour: cssColour(8) },
    { name: "Idle for other reasons", value: row.idle_other_ns ?? 0, colour: "var(--idle)" },
  ];
}

function titleOf(row: RankRow, rows: RankRow[]): string {
  const isOnly = rows.filter((other) => other.rank === row.rank).length === 1;
  const rank = row.rank === null ? "Device" : `Rank ${row.rank}`;
  return isOnly ? rank : `${rank}, ${row.device ?? "–"}`;
}

function meanOf(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
