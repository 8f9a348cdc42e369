import { useMemo, useState } from "preact/hooks";
import { cssColour } from "../colours";
import { callGroups, callTitle, lengthNs, skewShare, sumOf, type CallGroup } from "../communication/calls";
import { WorstCalls } from "../communication/worst_calls";
import { counted, formatBytes, formatDuration, formatRate, formatShare } from "../format";
import type { CollectiveRow } from "../page_data";
import { saysOf } from "../parts/columns";
import { Empty } from "../parts/empty";
import { Legend } from "../parts/legend";
import { Scatter, type Series } from "../parts/scatter";
import { Stack, lengthOf } from "../parts/stack";
import { Table, type TableColumn } from "../parts/table";
import type { ViewProps } from "../views";

const MOST_BARS = 12;
const MOST_SERIES = 8;

/** What collectives took, and how much of that was waiting for late ranks. */
export function Communication({ payload }: ViewProps) {
  const { page } = payload;
  const calls = page.report?.collectives ?? [];
  const groups = useMemo(() => callGroups(calls), [calls]);
  if (!calls.length) return <NoCalls />;
  return (
    <>
      <p class="headline">{sentence(calls)}</p>
      <Table
        caption="Calls by group, name and size"
        columns={COLUMNS}
        rows={groups}
        sortedBy="Total"
        filterText={(row) => callTitle(row)}
        noun="row"
        most={25}
        isLinked
      />
      <div class="thirds">
        <Parts groups={groups} />
        <Pictures calls={calls} />
      </div>
      <WorstCalls page={page} calls={calls} />
    </>
  );
}

function NoCalls() {
  return (
    <Empty title="No collective was found that several ranks took part in.">
      Give the traces of all ranks together: kinetoscope report FOLDER. Collectives are recorded with torch=True of
      kinetoscope.profile(...), or by a TorchProfiler; of gloo on CPU, too.
    </Empty>
  );
}

function sentence(calls: CollectiveRow[]): string {
  const [skew, transfer] = [
    sumOf(calls.map((call) => call.skew_ns ?? 0)),
    sumOf(calls.map((call) => call.transfer_ns ?? 0)),
  ];
  const lengthsNs = sumOf(calls.map(lengthNs));
  const total = `${counted(calls.length, "call")} took ${formatDuration(lengthsNs)}`;
  if (!skew && !transfer) return `${total}. How much of that was waiting for late ranks is not known.`;
  const unknown = Math.max(0, 1 - (skew + transfer) / lengthsNs);
  const rest = unknown < 0.005 ? "the rest transfer" : `${formatShare(transfer / lengthsNs)} transfer, ${formatShare(unknown)} is not known`;
  return `${total}: ${formatShare(skew / lengthsNs)} of that was waiting for late ranks, ${rest}.`;
}

const COLUMNS: TableColumn<CallGroup>[] = [
  { title: "Group", value: (row) => row.group },
  { title: "Call", value: (row) => row.name },
  { title: "Size", value: (row) => row.sizeBytes, unit: "bytes", show: (row) => <span>{row.size}</span> },
  { title: "Ranks", value: (row) => row.calls[0].num_ranks },
  { title: "Calls", value: (row) => row.calls.length },
  duration("Total", (row) => row.totalNs, "From the first rank's begin to the last one's end, summed over calls"),
  duration("Skew", (row) => row.skewNs, "From the first rank's begin to the last one's begin: others waited for it"),
  duration("Transfer", (row) => row.transferNs, "From the last rank's begin to the last one's end"),
  {
    title: "Skew's share",
    value: skewShare,
    show: (row) => <span>{formatShare(skewShare(row))}</span>,
    share: skewShare,
  },
  {
    title: "Bandwidth",
    value: (row) => row.bandwidth,
    unit: "bytes/s",
    show: (row) => <span>{formatRate(row.bandwidth)}</span>,
    help: "Bytes by time of transfer, of the middle call",
  },
];

function duration(title: string, value: (row: CallGroup) => number | null, help: string): TableColumn<CallGroup> {
  return { title, value, unit: "ns", help, show: (row) => <span>{formatDuration(value(row))}</span> };
}

/** Skew against transfer, of those that took most. */
function Parts({ groups }: { groups: CallGroup[] }) {
  const [shown, setShown] = useState<number | null>(null);
  const known = groups.filter((group) => skewShare(group) !== null);
  if (!known.length) return null;
  const bars = known.slice(0, MOST_BARS).map((group, at) => {
    const title = `${at + 1}. ${group.name}${group.sizeBytes === null ? "" : ` ${group.size}`}`;
    const parts = partsOf([group]);
    const full = `${callTitle(group)}, ${group.size}`;
    return { title, full, parts, length: formatDuration(lengthOf(parts)), says: saysOf({ title: full, parts }) };
  });
  const all = partsOf(known);
  const { full, parts } = shown === null ? { full: "All calls", parts: all } : bars[shown];
  return (
    <section aria-labelledby="skew-title">
      <h2 id="skew-title">Waiting against transfer</h2>
      <div class="numbers">
        <Legend title={`${full}: ${formatDuration(lengthOf(parts))}`} noun="Part" parts={parts} />
      </div>
      <div class="wide-titles">
        <Stack label="Kinds of calls, those that took most first" bars={bars} shown={shown} onShow={setShown} />
      </div>
    </section>
  );
}

function partsOf(groups: CallGroup[]) {
  const [skewNs, transferNs] = [
    sumOf(groups.map((group) => group.skewNs ?? 0)),
    sumOf(groups.map((group) => group.transferNs ?? 0)),
  ];
  return [
    { name: "Skew: waiting for late ranks", value: skewNs, colour: cssColour(2) },
    { name: "Transfer", value: transferNs, colour: cssColour(6) },
  ];
}

function Pictures({ calls }: { calls: CollectiveRow[] }) {
  const skews = seriesOf(calls, (call) => [call.transfer_ns, call.skew_ns]);
  const rates = seriesOf(calls, (call) => [call.bytes, call.bandwidth_bytes_per_s]);
  return (
    <>
      {skews.length > 0 && (
        <section aria-labelledby="skews-title">
          <h2 id="skews-title">Skew and transfer of each call</h2>
          <Scatter
            label="Skew of each call against its transfer. Above the line, ranks waited longer than the transfer took."
            series={skews}
            x={{ title: "Transfer", base: 10, format: formatDuration }}
            y={{ title: "Skew", base: 10, format: formatDuration }}
            diagonal="Above: waiting took longer than transfer"
          />
        </section>
      )}
      {rates.length > 0 && (
        <section aria-labelledby="rates-title">
          <h2 id="rates-title">Size and bandwidth of each call</h2>
          <Scatter
            label="Bandwidth of each call against its size"
            series={rates}
            x={{ title: "Size", base: 4, format: formatBytes }}
            y={{ title: "Bandwidth", base: 4, format: formatRate }}
          />
        </section>
      )}
    </>
  );
}

/** The points of each kind of call, of the first kinds. */
function seriesOf(calls: CollectiveRow[], pair: (call: CollectiveRow) => [number | null, number | null]): Series[] {
  const found = new Map<string, [number, number][]>();
  for (const call of calls) {
    const [x, y] = pair(call);
    if (x === null || y === null) continue;
    const title = callTitle(call);
    const name = found.has(title) || found.size < MOST_SERIES - 1 ? title : "others";
    const points = found.get(name);
    if (points) points.push([x, y]);
    else found.set(name, [[x, y]]);
  }
  return [...found].map(([name, points]) => ({ name, points }));
}
