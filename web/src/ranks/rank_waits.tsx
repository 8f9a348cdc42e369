import { useMemo } from "preact/hooks";
import { evidenceName, evidenceOf, evidenceValue } from "../evidence";
import { formatDuration } from "../format";
import type { DelayingRank, PageData, RunReport, StragglerRow, Waits } from "../page_data";
import { HeatMap } from "../parts/heat_map";
import { Table, type TableColumn } from "../parts/table";

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
      <h2 id="waits-title">Who waits for whom</h2>
      {report.stragglers.map((row, index) => (
        <Straggler key={row.rank} row={row} sentence={page.straggler_sentences[index]} />
      ))}
      {delaying.length ? (
        <>
          <HeatMap
            label="How long each rank waited for each other one, in collectives. Arrow keys choose a pair."
            cells={cells}
            format={formatDuration}
            isFromZero
            describeCell={(row, column) => `Rank ${ranks[row]} waited for rank ${ranks[column]}`}
          />
          <Table
            caption="Ranks that others waited for"
            columns={COLUMNS}
            rows={delaying}
            sortedBy="Waited for it"
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
    title: "Late rank",
    value: (delaying) => delaying.rank,
    show: (delaying) => <span>{`Rank ${delaying.rank}`}</span>,
  },
  {
    title: "Waited for it",
    value: (delaying) => delaying.total_ns,
    unit: "ns",
    show: (delaying) => <span>{formatDuration(delaying.total_ns)}</span>,
    help: "All ranks' waits for it, summed",
  },
  {
    title: "Longest wait",
    value: (delaying) => delaying.max_ns,
    unit: "ns",
    show: (delaying) => <span>{formatDuration(delaying.max_ns)}</span>,
  },
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
  if (!report.collectives.length)
    return "No collective was recorded on all ranks, so waits for late ranks are unknown.";
  return "No rank waited for another in a collective.";
}
