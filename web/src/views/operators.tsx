import { useMemo } from "preact/hooks";
import { counted, formatCount, formatDuration } from "../format";
import type { CallTotals, OperatorRow } from "../page_data";
import { Empty } from "../parts/empty";
import { Name } from "../parts/name";
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

const GROUPS = ["Name", "Name and shapes"];

type OperatorGroup = Group<OperatorRow> & Computed & { device_ns: number | null; shapes: string | null };

/** Operators by name, or by name and shapes, of all ranks. */
export function Operators({ payload }: ViewProps) {
  const rows = payload.page.report?.operators ?? [];
  const lines = useMemo(() => payload.page.calling_lines.filter((row) => row.kind === "operator"), [payload]);
  const columns = useMemo(() => operatorColumns(rows), [rows]);
  if (!rows.length) {
    return (
      <Empty title="No operators were recorded.">
        To record them, give kinetoscope.profile(torch=True), or a TorchProfiler: it records torch's operators in the
        steps that its schedule chooses.
      </Empty>
    );
  }
  return (
    <GroupedCalls
      payload={payload}
      caption="Operators"
      heading={heading(payload.page.call_totals)}
      rows={rows}
      lines={lines}
      groupings={rows.some((row) => row.shapes !== null) ? GROUPS : GROUPS.slice(0, 1)}
      group={operatorGroups}
      noun="operator"
      columns={columns}
      sortedBy="Own time"
      filterText={(row) => `${row.name} ${row.shapes ?? ""}`}
      facts={facts}
    />
  );
}

function heading(totals: CallTotals[]): string {
  const total = totals.find(({ kind }) => kind === "operators");
  if (!total) return "Operators";
  const own = formatDuration(total.self_ns);
  return `Operators took ${own} of their own in ${counted(total.num_calls, "call")}, on all ranks together`;
}

function operatorGroups(rows: OperatorRow[], by: string): OperatorGroup[] {
  const keyOf = (row: OperatorRow) => (by === GROUPS[1] ? JSON.stringify([row.name, row.shapes]) : row.name);
  return groupCalls(rows, keyOf, (row) => row.name).map((group) => ({
    ...group,
    shapes: group.rows.length === 1 ? group.rows[0].shapes : `${group.rows.length} different`,
    device_ns: knownSum(group.rows, (row) => row.device_ns),
    ...computedBy(group.rows),
  }));
}

function operatorColumns(rows: OperatorRow[]): TableColumn<OperatorGroup>[] {
  const columns: TableColumn<OperatorGroup>[] = [
    nameColumn("Operator"),
    callsColumn(),
    timeColumn(
      "Own time",
      (row) => row.self_ns,
      OWN_TIME,
      sum(rows, (row) => row.self_ns),
    ),
    timeColumn("Time", (row) => row.total_ns, "With the operators that they called"),
    ...callTimeColumns(),
  ];
  const wholeDeviceNs = knownSum(rows, (row) => row.device_ns);
  if (wholeDeviceNs !== null) columns.push(timeColumn("On the device", (row) => row.device_ns, DEVICE_TIME));
  columns.push(...computedColumns(rows));
  if (rows.some((row) => row.shapes !== null)) columns.splice(1, 0, SHAPES);
  return columns;
}

const OWN_TIME = "Without the time in operators that they called. The bar is the part of all operators' own time.";
const DEVICE_TIME = "Of the kernels and copies that were launched in them";
const SHAPES: TableColumn<OperatorGroup> = {
  title: "Shapes",
  value: (row) => row.shapes,
  show: (row) => <Name text={row.shapes ?? "–"} most={80} />,
};

function facts(group: OperatorGroup): [string, string][] {
  return [
    ["Calls", formatCount(group.num_calls)],
    ["Own time", formatDuration(group.self_ns)],
    ["Time", formatDuration(group.total_ns)],
    ["Longest call", formatDuration(group.max_ns)],
    ["On the device", formatDuration(group.device_ns)],
    ...computedFacts(group),
    ["Shapes", shapesOf(group.rows)],
  ];
}

/** The shapes with the most time first. */
function shapesOf(rows: OperatorRow[]): string {
  const known = rows.filter((row) => row.shapes !== null).sort((one, other) => other.self_ns - one.self_ns);
  const first = known.slice(0, 20).map((row) => `${row.shapes}: ${formatDuration(row.self_ns)}`);
  if (!first.length) return "not recorded";
  return first.join("; ") + (known.length > first.length ? `; and ${known.length - first.length} more` : "");
}
