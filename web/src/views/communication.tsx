import { useState } from "preact/hooks";
import { callTitle, sizeTitle } from "../communication/calls";
import { WorstCalls } from "../communication/worst_calls";
import { formatBytes, formatDuration, formatRate } from "../format";
import type { CallGroup, CollectiveRow, Communication as Calls } from "../page_data";
import { describeColumn } from "../parts/columns";
import { Legend } from "../parts/legend";
import { Scatter, type Series } from "../parts/scatter";
import { Stack } from "../parts/stack";
import { Table, type TableColumn } from "../parts/table";
import { bytesColumn, detail, rateColumn, shareColumn, timeColumn } from "../parts/unit_columns";
import { toStackParts } from "../step_breakdowns";
import type { ViewProps } from "../view";

const MAX_BARS = 12;
const MAX_SERIES = 8;

/** Collectives: their time, and the part of it that is spent waiting for stragglers. */
export function Communication({ payload }: ViewProps) {
  const { page } = payload;
  const calls = page.report?.collectives ?? [];
  const { communication } = page;
  if (!communication) return null;
  return (
    <>
      <p class="headline">{communication.summary}</p>
      <Table
        caption="Calls by group, name and size"
        columns={COLUMNS}
        rows={communication.groups}
        sortedBy="Total"
        filterText={(row) => callTitle(row)}
        noun="row"
        maxRows={25}
        isLinked
      />
      <div class="thirds">
        <Parts calls={communication} />
        <Pictures calls={calls} />
      </div>
      <WorstCalls payload={payload} communication={communication} />
    </>
  );
}

const COLUMNS: TableColumn<CallGroup>[] = [
  detail({ title: "Group", value: (row) => row.group, width: "narrow" }),
  { title: "Call", value: (row) => row.name },
  { ...bytesColumn<CallGroup>("Size", (row) => row.bytes), show: sizeTitle },
  detail({ title: "Ranks", value: (row) => row.num_ranks }),
  detail({ title: "Calls", value: (row) => row.num_calls }),
  timeColumn(
    "Total",
    (row) => row.total_ns,
    "From the start of the first rank to the end of the last, summed over calls",
  ),
  detail(timeColumn("Skew", (row) => row.skew_ns, "From the start of the first rank to the start of the last")),
  detail(timeColumn("Transfer", (row) => row.transfer_ns, "From the start of the last rank to the end of the last")),
  shareColumn("Skew share", (row) => row.skew_share, "Of skew and transfer together", 1),
  detail(rateColumn("Bandwidth", (row) => row.bandwidth_bytes_per_s, "Bytes per transfer time of the median call")),
];

/** Skew against transfer of the longest groups. */
function Parts({ calls }: { calls: Calls }) {
  const [shown, setShown] = useState<number | null>(null);
  const known = calls.groups.filter((group) => group.parts.length);
  if (!known.length) return null;
  const bars = known.slice(0, MAX_BARS).map((group, at) => {
    const title = `${at + 1}. ${group.name}${group.bytes === null ? "" : ` ${sizeTitle(group)}`}`;
    const [parts, timeNs, full] = [
      toStackParts(group.parts),
      group.total_ns,
      `${callTitle(group)}, ${sizeTitle(group)}`,
    ];
    return {
      title,
      full,
      timeNs,
      parts,
      length: formatDuration(timeNs),
      description: describeColumn({ title: full, timeNs, parts }),
    };
  });
  const all = { full: "All calls", timeNs: calls.total_ns, parts: toStackParts(calls.parts) };
  const { full, timeNs, parts } = shown === null ? all : bars[shown];
  return (
    <section aria-labelledby="skew-title">
      <h2 id="skew-title">Skew and transfer of each kind of call</h2>
      <div class="numbers">
        <Legend title={`${full}: ${formatDuration(timeNs)}`} noun="Part" parts={parts} />
      </div>
      <div class="wide-titles">
        <Stack label="Kinds of calls, the longest total first" bars={bars} shown={shown} onShow={setShown} />
      </div>
    </section>
  );
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
            label="Skew of each call against its transfer. Above the line, skew exceeds transfer."
            series={skews}
            x={{ title: "Transfer", base: 10, format: formatDuration }}
            y={{ title: "Skew", base: 10, format: formatDuration }}
            diagonal="Above: skew exceeds transfer"
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

/** Points by kind of call, for the first kinds. */
function seriesOf(calls: CollectiveRow[], pair: (call: CollectiveRow) => [number | null, number | null]): Series[] {
  const found = new Map<string, [number, number][]>();
  for (const call of calls) {
    const [x, y] = pair(call);
    if (x === null || y === null) continue;
    const title = callTitle(call);
    const name = found.has(title) || found.size < MAX_SERIES - 1 ? title : "others";
    const points = found.get(name);
    if (points) points.push([x, y]);
    else found.set(name, [[x, y]]);
  }
  return [...found].map(([name, points]) => ({ name, points }));
}
