import { formatCount } from "../format";
import type { SlowStepRow } from "../page_data";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import { detail, timeColumn } from "../parts/unit_columns";

/** Outlier steps outside profiling windows. */
export function SlowSteps({ rows }: { rows: SlowStepRow[] }) {
  return (
    <section class="slow-steps" aria-labelledby="slow-steps-title">
      <h2 id="slow-steps-title">Slow steps</h2>
      <Table
        caption="Slow steps outside profiling windows"
        columns={COLUMNS}
        rows={rows}
        sortedBy="Excess"
        noun="slow step"
        maxRows={10}
      />
      <p class="quiet">
        Each took much longer than the steps before it, outside of profiling windows. The folder slow_steps of the run
        has a trace of each. No other number of this report includes them.
      </p>
    </section>
  );
}

const COLUMNS: TableColumn<SlowStepRow>[] = [
  { title: "Step", value: (row) => row.step },
  timeColumn("Excess", (row) => row.excess_ns, "Over the median of the 256 steps before it"),
  detail(timeColumn("Duration", (row) => row.duration_ns)),
  {
    title: "Phase",
    value: (row) => row.phase.replaceAll("_", " "),
    help: "The phase of the loop with most of the excess",
    width: "narrow",
  },
  {
    title: "Line",
    value: (row) => row.line,
    show: (row) => (row.line === null ? <span class="quiet">unknown</span> : <Name text={row.line} />),
    help: "The line most often sampled once the step was late",
    width: "narrow",
  },
  detail({
    title: "Rank",
    value: (row) => row.rank,
    show: formatRanks,
    help: "The first rank that was slow; others may have waited for it",
  }),
  detail({ title: "Notes", value: whySlow, width: "narrow" }),
];

function formatRanks({ rank, ranks }: SlowStepRow): string {
  return ranks.length > 1 ? `${rank} and ${formatCount(ranks.length - 1)} more` : String(rank);
}

function whySlow(row: SlowStepRow): string {
  const regular =
    row.every === null ? [] : [`every ${formatCount(row.every)} steps, ${formatCount(row.num_kept)} kept`];
  return [...regular, ...(row.is_machines ? ["its thread waited for a CPU"] : [])].join("; ");
}
