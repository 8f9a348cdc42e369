import { useMemo } from "preact/hooks";
import { cssColour, KERNEL_KIND_COLOURS } from "../colours";
import { counted, formatBytes, formatCount, formatDuration, formatRate } from "../format";
import { shortKernelNames } from "../kernel_names";
import type { CallSums, CallTotals, KernelRow } from "../page_data";
import type { TableColumn } from "../parts/table";
import type { ViewProps } from "../view";
import {
  callsColumn,
  callTimeColumns,
  computedColumns,
  computedFacts,
  nameColumn,
  SHARE_COLUMN,
  timeColumn,
} from "./calls";
import { GroupedCalls } from "./grouped_calls";

const GROUPS = { name: "Name", untyped: "Name without types", kind: "Kind" };

/** Kernels and copies by name or kind, of all devices. */
export function Kernels({ payload }: ViewProps) {
  const rows = payload.page.report?.kernels ?? [];
  const lines = useMemo(() => payload.page.calling_lines.filter((row) => row.kind !== "operator"), [payload]);
  const totals = payload.page.call_totals;
  const wholeNs = totals.find(({ kind }) => kind === "kernels")?.total_ns;
  const columns = useMemo(() => kernelColumns(rows), [rows]);
  return (
    <GroupedCalls
      payload={payload}
      caption="Kernels"
      heading={heading(totals)}
      summary={payload.page.tensor_core_sentence}
      of="kernels"
      lines={lines}
      groupings={GROUPS}
      withoutNames="kind"
      noun="kernel"
      callsTitle="Runs"
      columns={columns}
      sortedBy="Time"
      filterText={(row) => `${row.name} ${row.kind}`}
      wholeNs={wholeNs}
      facts={facts}
    />
  );
}

function heading(totals: CallTotals[]): string {
  const all = totals.find(({ kind }) => kind === "kernels");
  const kinds = totals.filter(({ kind }) => kind !== "operators" && kind !== "kernels");
  if (!all) return "Kernels and copies";
  const parts = kinds.map((total) => `${formatDuration(total.total_ns)} ${total.kind}`).join(", ");
  const calls = counted(all.num_calls, "run");
  return `Kernels and copies took ${formatDuration(all.total_ns)} in ${calls}, on all devices together: ${parts}`;
}

function kernelColumns(rows: KernelRow[]): TableColumn<CallSums>[] {
  const columns: TableColumn<CallSums>[] = [
    nameColumn("Kernel", shortKernelNames(rows.map(({ name }) => name))),
    { title: "Kind", value: (row) => row.kind, show: (row) => <Kind kind={row.kind ?? ""} /> },
    { ...callsColumn(), title: "Runs" },
    timeColumn("Time", (row) => row.total_ns),
    SHARE_COLUMN,
    ...callTimeColumns("Unknown for several kernels together."),
  ];
  columns.push(...computedColumns(rows));
  if (rows.some((row) => row.bytes !== null)) columns.push(...BYTES);
  return columns;
}

const BYTES: TableColumn<CallSums>[] = [
  {
    title: "Size",
    value: (row) => row.bytes,
    show: (row) => formatBytes(row.bytes),
    unit: "B",
    help: "What copies moved, and what kernels with FLOPs read and wrote at least",
  },
  {
    title: "Bandwidth",
    value: (row) => row.bytes_per_s,
    show: (row) => formatRate(row.bytes_per_s),
    unit: "B/s",
  },
];

function Kind({ kind }: { kind: string }) {
  return (
    <span class="kind">
      <span class="swatch" style={{ background: cssColour(KERNEL_KIND_COLOURS[kind] ?? 8) }} aria-hidden="true" />
      {kind}
    </span>
  );
}

function facts(group: CallSums): [string, string][] {
  return [
    ["Kind", group.kind ?? "–"],
    ["Runs", formatCount(group.num_calls)],
    ["Time", formatDuration(group.total_ns)],
    ["Longest run", formatDuration(group.max_ns)],
    ...computedFacts(group),
    ["Size", formatBytes(group.bytes)],
  ];
}
