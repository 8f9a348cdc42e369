/** Operators and kernels: the columns and labels of their tables. */
import { cssColour, KERNEL_KIND_COLOURS } from "../colours";
import { counted, formatDuration, formatOperations } from "../format";
import { shortKernelNames } from "../kernel_names";
import type { CallSums, CallTotals } from "../page_data";
import { Name, OneLine } from "../parts/name";
import { Swatch } from "../parts/swatch";
import type { TableColumn } from "../parts/table_rows";
import {
  bytesColumn,
  countColumn,
  detail,
  flopColumn,
  rateColumn,
  shareColumn,
  timeColumn,
} from "../parts/unit_columns";

/** A kind of calls. */
export interface CallKind {
  /** Name of the view, and of the tables in the data. */
  name: "operators" | "kernels";
  noun: string;
  caption: string;
  callsTitle: string;
  sortedBy: string;
  /** Labels of the groupings, by their names in the data. In the first one, a row is one `noun`. */
  groupings: Record<string, string>;
  /** A grouping whose rows are not names of calls. */
  withoutNames?: string;
  /** A summary of all calls; `where` is their ranks or module. */
  heading: (totals: CallTotals[], where: string) => string;
  /** `wholeNs` is the self time of all calls. */
  columns: (rows: CallSums[], wholeNs: number) => TableColumn<CallSums>[];
  filterText: (row: CallSums) => string;
}

const SHARE_COLUMN = shareColumn<CallSums>(
  "Of step",
  (row) => row.share_of_step,
  "Share of the time of all recorded steps of all ranks",
);

/** FLOPs and memory traffic. */
const WORK_COLUMNS = [
  flopColumn<CallSums>(
    "FLOPs",
    (row) => row.flops,
    "Floating-point operations of matmuls, convolutions and attention whose shapes were recorded",
  ),
  {
    ...flopColumn<CallSums>(
      "FLOP/s",
      (row) => row.flops_per_s,
      "While their kernels ran; without a GPU, while the operator ran",
    ),
    unit: "FLOP/s",
    show: ({ flops_per_s: rate }: CallSums) => formatOperations(rate) + (rate === null ? "" : "/s"),
  },
  shareColumn<CallSums>("Of peak", (row) => row.mfu, "Share of the device's peak FLOP/s for this dtype (MFU)"),
  bytesColumn<CallSums>(
    "Size",
    (row) => row.bytes,
    "Bytes that copies moved, and that kernels with FLOPs read and wrote at least",
  ),
  rateColumn<CallSums>("Bandwidth", (row) => row.bytes_per_s),
].map(detail);

export const OPERATORS: CallKind = {
  name: "operators",
  noun: "operator",
  caption: "Operators",
  callsTitle: "Calls",
  sortedBy: "Self time",
  groupings: { name: "Name", shapes: "Name and shapes" },
  heading: ([all], where) =>
    `Operators${where}: ${formatDuration(all.self_ns)} self time in ${counted(all.num_calls, "call")}`,
  columns: (_, wholeNs) => [
    nameColumn("Operator"),
    detail({
      title: "Shapes",
      value: formatShapes,
      show: (row) => <Name text={formatShapes(row) ?? "–"} maxLength={80} />,
    }),
    detail(countColumn("Calls", (row) => row.num_calls)),
    timeColumn("Self time", (row) => row.self_ns, "Without the time in operators that they called", wholeNs),
    SHARE_COLUMN,
    detail(timeColumn("Total time", (row) => row.total_ns, "With the operators that they called")),
    ...callTimeColumns(),
    detail(timeColumn("GPU time", (row) => row.device_ns, "Of the kernels and copies that were launched in them")),
    ...WORK_COLUMNS,
  ],
  filterText: (row) => `${row.name} ${row.shapes ?? ""}`,
};

export const KERNELS: CallKind = {
  name: "kernels",
  noun: "kernel",
  caption: "Kernels",
  callsTitle: "Runs",
  sortedBy: "Time",
  groupings: { name: "Name", untyped: "Name without types", kind: "Kind" },
  withoutNames: "kind",
  heading: ([all, ...kinds], where) => {
    const parts = kinds.map(({ kind, total_ns }) => `${formatDuration(total_ns)} ${kind}`).join(", ");
    return `Kernels and copies${where}: ${formatDuration(all.total_ns)} in ${counted(all.num_calls, "run")} (${parts})`;
  },
  columns: (rows, wholeNs) => [
    nameColumn("Kernel", shortKernelNames(rows.map(({ name }) => name))),
    detail({
      title: "Kind",
      value: (row) => row.kind,
      show: (row) => <KernelKind kind={row.kind ?? ""} />,
      width: "short",
    }),
    detail(countColumn("Runs", (row) => row.num_calls)),
    timeColumn("Time", (row) => row.total_ns, undefined, wholeNs),
    SHARE_COLUMN,
    ...callTimeColumns("Unknown for several kernels together."),
    ...WORK_COLUMNS,
  ],
  filterText: (row) => `${row.name} ${row.kind}`,
};

/** The name of a call on one line, by its `shortNames` where it has one; the whole name is its title. */
function nameColumn(title: string, shortNames?: Map<string, string>): TableColumn<CallSums> {
  const show = ({ name }: CallSums) => <OneLine name={name} short={shortNames?.get(name)} />;
  return { title, value: (row) => row.name, show, width: "line" };
}

/** Columns of mean, median, p95 and longest call; `unknown` explains missing quantiles. */
function callTimeColumns(unknown?: string): TableColumn<CallSums>[] {
  return [
    timeColumn<CallSums>("Mean", (row) => row.mean_ns),
    timeColumn<CallSums>("Median", (row) => row.p50_ns, unknown),
    timeColumn<CallSums>("p95", (row) => row.p95_ns, `95 % of the calls took no longer. ${unknown ?? ""}`.trim()),
    timeColumn<CallSums>("Longest", (row) => row.max_ns),
  ].map(detail);
}

function formatShapes({ shapes, num_rows }: CallSums): string | null {
  return num_rows === 1 ? shapes : `${num_rows} different`;
}

function KernelKind({ kind }: { kind: string }) {
  return (
    <span>
      <Swatch colour={cssColour(KERNEL_KIND_COLOURS[kind] ?? 8)} />
      {kind}
    </span>
  );
}
