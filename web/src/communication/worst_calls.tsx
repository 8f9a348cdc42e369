import { useMemo } from "preact/hooks";
import { formatBytes, formatDuration, formatRate } from "../format";
import { navigate } from "../link";
import type { CollectiveRow, Communication } from "../page_data";
import { Table, type TableColumn } from "../parts/table";
import type { Payload } from "../payload";
import { buildCallLink } from "../view_links";
import { callTitle, lengthsOf } from "./calls";

const MAX_CALLS = 100;

type LongCall = CollectiveRow & { length_ns: number };

/** The longest calls; each links to the timeline, if the page has one. */
export function WorstCalls({ payload, communication }: { payload: Payload; communication: Communication }) {
  const { page } = payload;
  const worst = useMemo(() => longestCalls(payload, communication), [payload, communication]);
  const show = (call: LongCall) => navigate({ view: "timeline", ...buildCallLink(call, call.length_ns) });
  return (
    <section aria-labelledby="worst-calls-title">
      <h2 id="worst-calls-title">The longest calls</h2>
      <Table
        caption="Each of the longest calls"
        columns={COLUMNS}
        rows={worst}
        sortedBy="Took"
        noun="call"
        maxRows={15}
        onChoose={page.timeline ? show : undefined}
      />
    </section>
  );
}

function longestCalls(payload: Payload, communication: Communication): LongCall[] {
  const lengths = lengthsOf(communication, payload);
  const calls = (payload.page.report?.collectives ?? []).map((call, at) => ({ ...call, length_ns: lengths[at] }));
  return calls.sort((one, other) => other.length_ns - one.length_ns).slice(0, MAX_CALLS);
}

const COLUMNS: TableColumn<LongCall>[] = [
  { title: "Call", value: callTitle },
  { title: "Size", value: (call) => call.bytes, unit: "bytes", show: (call) => <span>{formatBytes(call.bytes)}</span> },
  { title: "Step", value: (call) => call.step },
  {
    title: "Late rank",
    value: (call) => call.late_rank,
    show: (call) => <span>{call.late_rank === null ? "–" : `Rank ${call.late_rank}`}</span>,
  },
  {
    title: "Took",
    value: (call) => call.length_ns,
    unit: "ns",
    show: (call) => <span>{formatDuration(call.length_ns)}</span>,
  },
  {
    title: "Skew",
    value: (call) => call.skew_ns,
    unit: "ns",
    show: (call) => <span>{formatDuration(call.skew_ns)}</span>,
  },
  {
    title: "Transfer",
    value: (call) => call.transfer_ns,
    unit: "ns",
    show: (call) => <span>{formatDuration(call.transfer_ns)}</span>,
  },
  {
    title: "Bandwidth",
    value: (call) => call.bandwidth_bytes_per_s,
    unit: "bytes/s",
    show: (call) => <span>{formatRate(call.bandwidth_bytes_per_s)}</span>,
  },
];
