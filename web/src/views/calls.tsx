import { formatCount, formatDuration, formatOperations, formatShare } from "../format";
import { Name } from "../parts/name";
import type { TableColumn } from "../parts/table";

/** All calls of one name. Quantiles of several rows together are not known. */
export interface Calls {
  name: string;
  num_calls: number;
  total_ns: number;
  self_ns: number;
  mean_ns: number;
  p50_ns: number | null;
  p95_ns: number | null;
  max_ns: number;
}

/** A row of a grouped table: the sums of rows, and these rows. */
export type Group<Row extends Calls> = Calls & { rows: Row[] };

/** One group for each key, in the order of the first rows. `name` says what a group is called. */
export function groupCalls<Row extends Calls>(
  rows: Row[],
  keyOf: (row: Row) => string,
  nameOf: (row: Row) => string,
): Group<Row>[] {
  const members = new Map<string, Row[]>();
  for (const row of rows) {
    const key = keyOf(row);
    const group = members.get(key);
    if (group) group.push(row);
    else members.set(key, [row]);
  }
  return [...members.values()].map((rows) => ({ ...addedUp(rows), name: nameOf(rows[0]), rows }));
}

function addedUp(rows: Calls[]): Omit<Calls, "name"> {
  const [total_ns, num_calls] = [sum(rows, (row) => row.total_ns), sum(rows, (row) => row.num_calls)];
  return {
    num_calls,
    total_ns,
    self_ns: sum(rows, (row) => row.self_ns),
    mean_ns: total_ns / num_calls,
    p50_ns: rows.length === 1 ? rows[0].p50_ns : null,
    p95_ns: rows.length === 1 ? rows[0].p95_ns : null,
    max_ns: rows.reduce((most, row) => Math.max(most, row.max_ns), 0),
  };
}

export function sum<Row>(rows: Row[], value: (row: Row) => number | null): number {
  return rows.reduce((total, row) => total + (value(row) ?? 0), 0);
}

/** The sum of what is known; null where nothing is. */
export function knownSum<Row>(rows: Row[], value: (row: Row) => number | null): number | null {
  return rows.some((row) => value(row) !== null) ? sum(rows, value) : null;
}

/** What calls computed. */
export interface Computed {
  flops: number | null;
  flops_per_s: number | null;
  mfu: number | null;
}

/** What several rows computed together: rates count by their time. */
export function computedBy(rows: Computed[]): Computed {
  const timed = rows.filter((row) => row.flops && row.flops_per_s);
  const timeOf = (row: Computed) => (row.flops ?? 0) / (row.flops_per_s ?? 1);
  const wholeS = sum(timed, timeOf);
  const isKnown = timed.length > 0 && timed.every((row) => row.mfu !== null);
  return {
    flops: knownSum(rows, (row) => row.flops),
    flops_per_s: wholeS ? sum(timed, (row) => (row.flops_per_s ?? 0) * timeOf(row)) / wholeS : null,
    mfu: isKnown ? sum(timed, (row) => (row.mfu ?? 0) * timeOf(row)) / wholeS : null,
  };
}

/** FLOPs, FLOP/s and the share of the device's peak, as far as some row has them. */
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

/** The same of one row, in words. */
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

export function nameColumn(title: string): TableColumn<Calls> {
  return { title, value: (row) => row.name, show: (row) => <Name text={row.name} most={120} /> };
}

export function callsColumn(): TableColumn<Calls> {
  return { title: "Calls", value: (row) => row.num_calls, show: (row) => formatCount(row.num_calls) };
}

export function timeColumn<Row>(
  title: string,
  value: (row: Row) => number | null,
  help?: string,
  wholeNs?: number,
): TableColumn<Row> {
  const share = wholeNs ? (row: Row) => (value(row) ?? 0) / wholeNs : undefined;
  return { title, value, show: (row) => formatDuration(value(row)), unit: "ns", help, share };
}

/** Mean, median, 95th percentile and longest call. */
export function callTimeColumns(): TableColumn<Calls>[] {
  const unknown = "It is not known for several rows together.";
  return [
    timeColumn("Mean", (row) => row.mean_ns),
    timeColumn("Median", (row) => row.p50_ns, unknown),
    timeColumn("95 %", (row) => row.p95_ns, `95 of 100 calls took no longer. ${unknown}`),
    timeColumn("Longest", (row) => row.max_ns),
  ];
}
