import { useMemo } from "preact/hooks";
import { formatBytes, formatCount } from "../format";
import type { Allocation, MemoryHolder, MemoryOverTime, MemoryRow, PageData, RunReport } from "../page_data";
import { Choice, useLinkedChoice } from "../parts/choice";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import { bytesColumn, detail } from "../parts/unit_columns";
import type { Payload } from "../payload";
import type { Reason, ViewProps } from "../view";
import "./memory.css";
import { OverTime } from "./over_time";
import { readSeries } from "./series";

/** Memory by category over time, live allocations at the peak, and growth per step. */
export function Memory({ payload }: ViewProps) {
  const { memory: all, report } = payload.page;
  const memory = all.filter(({ times }) => times.length > 0);
  const rows = report?.memory ?? [];
  return (
    <>
      {memory.length > 0 && <Devices payload={payload} memory={memory} />}
      {rows.length > 0 && <Peaks rows={rows} highest={payload.page.overview.peak_bytes} />}
      {rows.length > 0 && <Growth rows={rows} />}
    </>
  );
}

export function whyNoMemory({ memory: [first] }: PageData): Reason {
  if (first) return { title: `Nothing was allocated on ${nameOf(first.device)} while memory was recorded.` };
  return {
    title: "No memory was recorded.",
    remedy:
      "kinetoscope.profile(...) records it, and so does torch.profiler with profile_memory=True. The lines that allocated it need with_stack=True, too.",
  };
}

function Devices({ payload, memory }: { payload: Payload; memory: MemoryOverTime[] }) {
  const { report } = payload.page;
  const titles = memory.map(({ rank, device }) =>
    rank === null ? nameOf(device) : `${nameOf(device)} of rank ${rank}`,
  );
  const [title, setTitle] = useLinkedChoice("device", titles);
  const chosen = memory[titles.indexOf(title)] ?? memory[0];
  const series = useMemo(() => readSeries(chosen, payload), [chosen]);
  const steps = useMemo(() => stepsOf(report, chosen.rank), [chosen]);
  return (
    <>
      <OverTime key={title} series={series} steps={steps} title={title}>
        {titles.length > 1 && <Choice title="Memory of" options={titles} chosen={title} onChoose={setTitle} />}
      </OverTime>
      {chosen.alive_at_peak.length > 0 && <AliveAtPeak memory={chosen} title={title} />}
    </>
  );
}

/** The label of a device, as in the rest of the report. */
function nameOf(device: string): string {
  return device === "CPU" ? "the host" : device;
}

function stepsOf(report: RunReport | null, rank: number | null) {
  return (report?.steps ?? []).filter((row) => row.rank === rank);
}

function AliveAtPeak({
  memory: { alive_at_peak: rows, peak_bytes },
  title,
}: {
  memory: MemoryOverTime;
  title: string;
}) {
  const columns = useMemo(() => allocationColumns(peak_bytes), [peak_bytes]);
  return (
    <section>
      <h2>Live at the peak</h2>
      <Table
        caption={`Live at the peak on ${title}`}
        columns={columns}
        rows={rows}
        sortedBy="Size"
        filterText={(row) => `${row.name} ${row.category} ${row.line ?? ""}`}
        noun="kind"
        maxRows={20}
      />
    </section>
  );
}

function allocationColumns(peakBytes: number): TableColumn<Allocation>[] {
  return [
    { title: "Allocated by", value: (row) => row.name || "unknown" },
    detail({ title: "Category", value: (row) => row.category.replace(/_/g, " ") }),
    { title: "Line", value: (row) => row.line },
    { title: "Step", value: (row) => row.step },
    detail({ title: "Allocations", value: (row) => row.num_allocations }),
    bytesColumn("Size", (row) => row.size_bytes, "The bar is the share of the peak", peakBytes),
  ];
}

/** The peak of each device of each rank, by category. */
function Peaks({ rows, highest }: { rows: MemoryRow[]; highest: number | null }) {
  const columns = useMemo(() => peakColumns(highest), [highest]);
  return (
    <section>
      <h2>Peak of each device</h2>
      <Table caption="Peak of each device" columns={columns} rows={rows} noun="device" maxRows={16} />
    </section>
  );
}

function deviceOf(row: MemoryRow): string {
  return row.device === null ? "host" : `device ${row.device}`;
}

function peakColumns(highest: number | null): TableColumn<MemoryRow>[] {
  return [
    { title: "Rank", value: (row) => row.rank },
    { title: "Device", value: deviceOf },
    bytesColumn("Peak", (row) => row.peak_bytes, "The bar is the share of the highest peak", highest),
    detail({ title: "In step", value: (row) => row.peak_step }),
    bytesColumn("Growth per step", (row) => row.growth_bytes_per_step, "Of live memory at the end of a step"),
    detail({ title: "At the peak", value: sharesOf, width: "wide" }),
  ];
}

function sharesOf(row: MemoryRow): string | null {
  const parts = Object.entries(row.by_category).sort(([, one], [, other]) => other - one);
  return parts.map(([category, bytes]) => `${category.replace(/_/g, " ")} ${formatBytes(bytes)}`).join(", ") || null;
}

type HolderRow = MemoryHolder & { rank: number | null; device: string };

/** Allocations that grow, by their source. */
function Growth({ rows }: { rows: MemoryRow[] }) {
  const holders = rows.flatMap((row) =>
    row.holders.map((holder) => ({ ...holder, rank: row.rank, device: deviceOf(row) })),
  );
  const isKnown = rows.some((row) => row.growth_bytes_per_step !== null);
  return (
    <section>
      <h2>Memory growth</h2>
      {holders.length ? (
        <Table
          caption="Memory growth"
          columns={HOLDER_COLUMNS}
          rows={holders}
          sortedBy="Growth per step"
          noun="allocating operator"
        />
      ) : (
        <p class="quiet">
          {isKnown
            ? "None: live memory is about the same at the end of each step."
            : "Unknown: memory must be recorded in several consecutive steps."}
        </p>
      )}
    </section>
  );
}

const HOLDER_COLUMNS: TableColumn<HolderRow>[] = [
  { title: "Operator", value: (row) => row.operator ?? "unknown" },
  { title: "Line", value: (row) => row.line },
  { title: "Rank", value: (row) => row.rank },
  detail({ title: "Device", value: (row) => row.device }),
  detail({
    title: "Steps",
    value: (row) => row.steps.length,
    show: (row) => <Name text={stepsText(row.steps)} maxLength={60} />,
    help: "Steps after which more memory was live",
  }),
  bytesColumn("Growth per step", (row) => row.bytes_per_step),
];

function stepsText(steps: number[]): string {
  if (steps.length <= 6) return steps.join(", ");
  return `${formatCount(steps.length)} steps, ${steps[0]} to ${steps[steps.length - 1]}`;
}
