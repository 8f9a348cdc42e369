import { useMemo } from "preact/hooks";
import { evidenceName, evidenceOf, evidenceValue } from "../evidence";
import { formatDuration } from "../format";
import type { DelayingRank, PageData, RunReport, StragglerRow, Waits } from "../page_data";
import { HeatMap } from "../parts/heat_map";
import { Table, type TableColumn } from "../parts/table";
import { timeColumn } from "../parts/unit_columns";

/** Stragglers with their causes, and the waits of other ranks for them. */
export function RankWaits({ page, report }: { page: PageData; report: RunReport }) {
  const { ranks, waited, delaying } = page.waits ?? NO_WAITS;
  const cells = useMemo(
    () => ({
      rows: ranks.map((rank) => `Rank ${rank}`),
      columns: ranks.map((rank) => `for ${rank}`),
      value: (row: number, column: number) => (row === column ? null : waited[row][column]),
    }),
    [ranks, waited],
  );
  return (
    <section aria-labelledby="waits-title">
      <h2 id="waits-title">Waits between ranks</h2>
      {report.stragglers.map((row, index) => (
        <Straggler key={row.rank} row={row} sentence={page.straggler_sentences[index]} />
      ))}
      {delaying.length ? (
        <>
          <HeatMap
            label="Wait of each rank for each other rank, in collectives. Arrow keys select a pair."
            cells={cells}
            format={formatDuration}
            isFromZero
            describeCell={(row, column) => `Rank ${ranks[row]} waited for rank ${ranks[column]}`}
          />
          <Table
            caption="Ranks that others waited for"
            columns={COLUMNS}
            rows={delaying}
            sortedBy="Total wait"
            noun="rank"
            maxRows={10}
          />
        </>
      ) : (
        <p class="quiet">{whyNone(report)}</p>
      )}
    </section>
  );
}

const NO_WAITS: Waits = { ranks: [], waited: [], delaying: [] };

const COLUMNS: TableColumn<DelayingRank>[] = [
  {
    title: "Last rank",
    value: (delaying) => delaying.rank,
    show: (delaying) => `Rank ${delaying.rank}`,
    help: "The last rank to start a call",
  },
  timeColumn("Total wait", (delaying) => delaying.total_ns, "Of all other ranks, summed over calls"),
  timeColumn("Longest wait", (delaying) => delaying.max_ns),
  { title: "Calls", value: (delaying) => delaying.num_calls },
];

function Straggler({ row, sentence }: { row: StragglerRow; sentence: string }) {
  const numbers = evidenceOf(row).map(
    ([name, value]) => `${evidenceName(name).toLowerCase()}: ${evidenceValue(name, value)}`,
  );
  return (
    <p>
      <strong>{sentence}</strong>
      {`. Each other rank waits ${formatDuration(row.cost_ns_per_step)}/step for it`}
      {numbers.length ? ` (${numbers.join("; ")}).` : "."}
    </p>
  );
}

function whyNone(report: RunReport): string {
  if (report.run.ranks.length < 2) return "This report has one rank, so no rank waits for another.";
  if (!report.collectives.length) return "No collective was recorded on all ranks, so waits between ranks are unknown.";
  return "No rank waited for another in a collective.";
}
