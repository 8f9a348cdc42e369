import { formatCount, formatDuration } from "../format";
import type { SlowStepRow } from "../page_data";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";

/** Outlier steps outside profiling windows. */
export function SlowSteps({ rows }: { rows: SlowStepRow[] }) {
  return (
    <section class="slow-steps" aria-labelledby="slow-steps-title">
      <h2 id="slow-steps-title">Slow steps</h2>
      <p class="quiet">
        Each took much longer than the steps before it, while nothing was recorded. The folder slow_steps of the run has
        a trace of each; nothing else in this report rests on them.
      </p>
      <Table
        caption="Slow steps outside profiling windows"
        columns={COLUMNS}
        rows={rows}
        sortedBy="Longer by"
        noun="slow step"
        maxRows={10}
      />
    </section>
  );
}

const COLUMNS: TableColumn<SlowStepRow>[] = [
  { title: "Step", value: (row) => row.step, show: (row) => <span>{formatCount(row.step)}</span>, width: "short" },
  {
    title: "Longer by",
    value: (row) => row.excess_ns,
    unit: "ns",
    show: (row) => <span>{formatDuration(row.excess_ns)}</span>,
    help: "Than the median of the 256 steps before it",
  },
  {
    title: "Took",
    value: (row) => row.duration_ns,
    unit: "ns",
    show: (row) => <span>{formatDuration(row.duration_ns)}</span>,
  },
  {
    title: "Phase",
    value: (row) => row.phase.replaceAll("_", " "),
    help: "The phase of the loop that has most of what it took longer",
    width: "narrow",
  },
  {
    title: "Line",
    value: (row) => row.line,
    show: (row) => (row.line === null ? <span class="quiet">unknown</span> : <Name text={row.line} />),
    help: "Where the loop's thread was, of samples taken once the step was late",
    width: "narrow",
  },
  {
    title: "Rank",
    value: (row) => row.rank,
    show: (row) => <span>{formatRanks(row)}</span>,
    help: "Where it was slow first; others may have waited for it",
  },
  { title: "Known of it", value: whySlow, width: "narrow" },
];

function formatRanks({ rank, ranks }: SlowStepRow): string {
  return ranks.length > 1 ? `${rank} and ${formatCount(ranks.length - 1)} more` : String(rank);
}

function whySlow(row: SlowStepRow): string {
  const regular =
    row.every === null ? [] : [`every ${formatCount(row.every)} steps, ${formatCount(row.num_kept)} kept`];
  return [...regular, ...(row.is_machines ? ["its thread waited for a CPU"] : [])].join("; ");
}
