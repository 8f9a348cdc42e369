import { useMemo } from "preact/hooks";
import { cssColour, KERNEL_KIND_COLOURS } from "../colours";
import { counted, formatBytes, formatCount, formatDuration, formatRate } from "../format";
import type { CallTotals, KernelRow } from "../page_data";
import { Empty } from "../parts/empty";
import type { TableColumn } from "../parts/table";
import type { ViewProps } from "../views";
import {
  callsColumn,
  callTimeColumns,
  computedBy,
  computedColumns,
  computedFacts,
  groupCalls,
  knownSum,
  nameColumn,
  sum,
  timeColumn,
  type Computed,
  type Group,
} from "./calls";
import { GroupedCalls } from "./grouped_calls";

const GROUPS = ["Name", "Name without types", "Kind"];

type KernelGroup = Group<KernelRow> & Computed & { kind: string; bytes: number | null };

/** Kernels and copies by name or kind, of all devices. */
export function Kernels({ payload }: ViewProps) {
  const rows = payload.page.report?.kernels ?? [];
  const lines = useMemo(() => payload.page.calling_lines.filter((row) => row.kind !== "operator"), [payload]);
  const columns = useMemo(() => kernelColumns(rows), [rows]);
  if (!rows.length) {
    return (
      <Empty title="No kernels were recorded: the run had no GPU, or it was not recorded.">
        To record kernels and copies, give kinetoscope.profile(torch=True), or a TorchProfiler, on a machine with a GPU.
      </Empty>
    );
  }
  return (
    <GroupedCalls
      payload={payload}
      caption="Kernels"
      heading={heading(payload.page.call_totals)}
      rows={rows}
      lines={lines}
      groupings={GROUPS}
      withoutNames={GROUPS[2]}
      group={kernelGroups}
      noun="kernel"
      columns={columns}
      sortedBy="Time"
      filterText={(row) => `${row.name} ${row.kind}`}
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

export function kernelGroups(rows: KernelRow[], by: string): KernelGroup[] {
  const nameOf =
    by === GROUPS[2]
      ? (row: KernelRow) => row.kind
      : by === GROUPS[1]
        ? (row: KernelRow) => withoutTypes(row.name)
        : (row: KernelRow) => row.name;
  const keyOf = (row: KernelRow) => JSON.stringify([nameOf(row), row.kind]);
  return groupCalls(rows, keyOf, nameOf).map((group) => ({
    ...group,
    kind: group.rows[0].kind,
    ...computedBy(group.rows),
    bytes: knownSum(group.rows, (row) => row.bytes),
  }));
}

/** A C++ name without its return type, template's types and arguments: "void at::fill<float>(int)" is "at::fill". */
export function withoutTypes(name: string): string {
  let [depth, kept] = [0, ""];
  const plain = name.replace(/\(anonymous namespace\)/g, "{anonymous}");
  for (const character of plain) {
    if (character === "(" && depth === 0) break;
    if (character === "<") depth++;
    if (depth === 0) kept += character;
    if (character === ">") depth = Math.max(0, depth - 1);
  }
  return kept.replace(/^void /, "").trim() || name;
}

function kernelColumns(rows: KernelRow[]): TableColumn<KernelGroup>[] {
  const columns: TableColumn<KernelGroup>[] = [
    nameColumn("Kernel"),
    { title: "Kind", value: (row) => row.kind, show: (row) => <Kind kind={row.kind} /> },
    { ...callsColumn(), title: "Runs" },
    timeColumn(
      "Time",
      (row) => row.total_ns,
      undefined,
      sum(rows, (row) => row.total_ns),
    ),
    ...callTimeColumns(),
  ];
  columns.push(...computedColumns(rows));
  if (rows.some((row) => row.bytes !== null)) columns.push(...BYTES);
  return columns;
}

const BYTES: TableColumn<KernelGroup>[] = [
  {
    title: "Size",
    value: (row) => row.bytes,
    show: (row) => formatBytes(row.bytes),
    unit: "B",
    help: "What copies moved, and what kernels with FLOPs read and wrote at least",
  },
  {
    title: "Bandwidth",
    value: (row) => perSecond(row.bytes, row),
    show: (row) => formatRate(perSecond(row.bytes, row)),
    unit: "B/s",
  },
];

function perSecond(amount: number | null, row: KernelGroup): number | null {
  return amount === null || !row.total_ns ? null : amount / (row.total_ns / 1e9);
}

function Kind({ kind }: { kind: string }) {
  return (
    <span class="kind">
      <span class="swatch" style={{ background: cssColour(KERNEL_KIND_COLOURS[kind] ?? 8) }} aria-hidden="true" />
      {kind}
    </span>
  );
}

function facts(group: KernelGroup): [string, string][] {
  return [
    ["Kind", group.kind],
    ["Runs", formatCount(group.num_calls)],
    ["Time", formatDuration(group.total_ns)],
    ["Longest run", formatDuration(group.max_ns)],
    ...computedFacts(group),
    ["Size", formatBytes(group.bytes)],
  ];
}
