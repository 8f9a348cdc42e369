import { useMemo } from "preact/hooks";
import { navigate } from "../link";
import type { CollectiveRow, Communication } from "../page_data";
import { Table, type TableColumn } from "../parts/table";
import { bytesColumn, detail, rateColumn, timeColumn } from "../parts/unit_columns";
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
      <h2 id="worst-calls-title">Longest calls</h2>
      <Table
        caption="Each of the longest calls"
        columns={COLUMNS}
        rows={worst}
        sortedBy="Duration"
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
  detail(bytesColumn("Size", (call) => call.bytes)),
  { title: "Step", value: (call) => call.step },
  {
    title: "Last rank",
    value: (call) => call.late_rank,
    show: (call) => (call.late_rank === null ? "–" : `Rank ${call.late_rank}`),
    help: "The last rank to start, which the others waited for",
  },
  timeColumn("Duration", (call) => call.length_ns),
  timeColumn("Skew", (call) => call.skew_ns),
  detail(timeColumn("Transfer", (call) => call.transfer_ns)),
  detail(rateColumn("Bandwidth", (call) => call.bandwidth_bytes_per_s)),
];
