import { useState } from "preact/hooks";
import { cssColour, DEVICE_COLOURS } from "../colours";
import { formatDuration } from "../format";
import type { DeviceTimes, PageData, RankRow } from "../page_data";
import { saysOf } from "../parts/columns";
import { Legend } from "../parts/legend";
import { Stack, type StackPart } from "../parts/stack";

/** What the device of each rank did, and why it was idle. */
export function Devices({ page, ranks }: { page: PageData; ranks: RankRow[] }) {
  const [shown, setShown] = useState<number | null>(null);
  const rows = ranks.filter((row) => row.window_ns !== null);
  if (!rows.length || !page.devices) return <NoDevice />;
  const bars = rows.map((row) => {
    const [title, timeNs, parts] = [titleOf(row, rows), row.window_ns ?? 0, partsOf(row)];
    return { title, timeNs, parts, length: formatDuration(timeNs), says: saysOf({ title, timeNs, parts }) };
  });
  const mean = {
    title: "All devices, on average",
    timeNs: page.devices.window_ns,
    parts: partsOf(page.devices),
  };
  const { title, timeNs, parts } = shown === null ? mean : bars[shown];
  return (
    <section aria-labelledby="devices-title">
      <h2 id="devices-title">What the devices did</h2>
      <div class="numbers">
        <Legend title={`${title}: ${formatDuration(timeNs)}`} noun="Use" whole={timeNs} parts={parts} />
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

function partsOf(row: DeviceTimes | RankRow): StackPart[] {
  return [
    { name: "Computing", value: row.compute_ns, colour: cssColour(DEVICE_COLOURS.compute) },
    {
      name: "Only communicating",
      value: row.exposed_communication_ns,
      colour: cssColour(DEVICE_COLOURS.communication),
    },
    { name: "Only copying", value: row.exposed_copy_ns, colour: cssColour(DEVICE_COLOURS.copy) },
    { name: "Idle: the host was late", value: row.idle_host_wait_ns, colour: cssColour(7) },
    { name: "Idle between kernels", value: row.idle_kernel_wait_ns, colour: cssColour(8) },
    { name: "Idle for other reasons", value: row.idle_other_ns, colour: "var(--idle)" },
  ];
}

function titleOf(row: RankRow, rows: RankRow[]): string {
  const isOnly = rows.filter((other) => other.rank === row.rank).length === 1;
  const rank = row.rank === null ? "Device" : `Rank ${row.rank}`;
  return isOnly ? rank : `${rank}, ${row.device ?? "–"}`;
}
