import { formatCount, formatDuration, formatOperations, formatShare } from "../format";
import type { CallSums, CallTable } from "../page_data";
import { OneLine } from "../parts/name";
import type { TableColumn } from "../parts/table";

/** Groupings of a table of calls. */
export function rowsBy(tables: CallTable[], of: string, by: string): CallSums[] {
  return tables.find((table) => table.of === of && table.by === by)?.rows ?? [];
}

/** Work of calls. */
export interface Computed {
  flops: number | null;
  flops_per_s: number | null;
  mfu: number | null;
}

/** Columns of FLOP, FLOP/s and MFU, as far as rows have them. */
export function computedColumns(rows: Computed[]): TableColumn<Computed>[] {
  const columns: (TableColumn<Computed> & { value: (row: Computed) => number | null })[] = [
    {
      title: "FLOPs",
      value: (row) => row.flops,
      show: (row) => formatOperations(row.flops),
      unit: "FLOP",
      help: "Floating-point operations of products of matrices, convolutions and attention whose shapes were recorded",
    },
    {
      title: "FLOP/s",
      value: (row) => row.flops_per_s,
      show: (row) => formatFlopRate(row.flops_per_s),
      unit: "FLOP/s",
      help: "While their kernels ran; without a device, while the operator ran",
    },
    {
      title: "Of peak",
      value: (row) => row.mfu,
      show: (row) => formatShare(row.mfu),
      help: "The share of what the device can do at most with numbers of this type (MFU)",
    },
  ];
  return columns.filter((column) => rows.some((row) => column.value(row) !== null));
}

/** The work of one row as text. */
export function computedFacts(row: Computed): [string, string][] {
  return [
    ["FLOPs", formatOperations(row.flops)],
    ["FLOP/s", formatFlopRate(row.flops_per_s)],
    ["Of peak", formatShare(row.mfu)],
  ];
}

function formatFlopRate(flopsPerS: number | null): string {
  return flopsPerS === null ? formatOperations(null) : `${formatOperations(flopsPerS)}/s`;
}

/** The name of a call on one line, by its `shortNames` where it has one; the whole name is its title. */
export function nameColumn(title: string, shortNames?: Map<string, string>): TableColumn<CallSums> {
  const show = ({ name }: CallSums) => <OneLine name={name} short={shortNames?.get(name)} />;
  return { title, value: (row) => row.name, show, width: "line" };
}

/** Time as a share of the step, with a bar. */
export const SHARE_COLUMN: TableColumn<CallSums> = {
  title: "Of step",
  value: (row) => row.share_of_step,
  show: (row) => formatShare(row.share_of_step),
  whole: 1,
  help: "Share of the time of all recorded steps of all ranks",
};

export function callsColumn(): TableColumn<CallSums> {
  return { title: "Calls", value: (row) => row.num_calls, show: (row) => formatCount(row.num_calls) };
}

export function timeColumn<Row>(
  title: string,
  value: (row: Row) => number | null,
  help?: string,
  wholeNs?: number,
): TableColumn<Row> {
  return { title, value, show: (row) => formatDuration(value(row)), unit: "ns", help, whole: wholeNs };
}

/** Columns of mean, median, p95 and longest call; `unknown` explains missing quantiles. */
export function callTimeColumns(unknown?: string): TableColumn<CallSums>[] {
  return [
    timeColumn("Mean", (row) => row.mean_ns),
    timeColumn("Median", (row) => row.p50_ns, unknown),
    timeColumn("95 %", (row) => row.p95_ns, `95 of 100 calls took no longer. ${unknown ?? ""}`.trim()),
    timeColumn("Longest", (row) => row.max_ns),
  ];
}
