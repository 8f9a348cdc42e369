import { useMemo } from "preact/hooks";
import { counted, formatCount, formatDuration } from "../format";
import type { CallSums, CallTotals, OperatorRow } from "../page_data";
import { Name } from "../parts/name";
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

const GROUPS = { name: "Name", shapes: "Name and shapes" };

/** Operators by name, or by name and shapes, over all ranks. */
export function Operators({ payload }: ViewProps) {
  const rows = payload.page.report?.operators ?? [];
  const lines = useMemo(() => payload.page.calling_lines.filter((row) => row.kind === "operator"), [payload]);
  const total = payload.page.call_totals.find(({ kind }) => kind === "operators");
  const columns = useMemo(() => operatorColumns(rows), [rows]);
  return (
    <GroupedCalls
      payload={payload}
      caption="Operators"
      heading={heading(total)}
      of="operators"
      lines={lines}
      groupings={GROUPS}
      noun="operator"
      callsTitle="Calls"
      columns={columns}
      sortedBy="Self time"
      filterText={(row) => `${row.name} ${row.shapes ?? ""}`}
      wholeNs={total?.self_ns}
      facts={(sums) => facts(sums, rows)}
    />
  );
}

function heading(total?: CallTotals): string {
  if (!total) return "Operators";
  const own = formatDuration(total.self_ns);
  return `Self time of operators: ${own} in ${counted(total.num_calls, "call")}, on all ranks`;
}

function operatorColumns(rows: OperatorRow[]): TableColumn<CallSums>[] {
  const columns: TableColumn<CallSums>[] = [
    nameColumn("Operator"),
    callsColumn(),
    timeColumn("Self time", (row) => row.self_ns, "Without the time in operators that they called"),
    SHARE_COLUMN,
    timeColumn("Time", (row) => row.total_ns, "With the operators that they called"),
    ...callTimeColumns(),
  ];
  if (rows.some((row) => row.device_ns !== null))
    columns.push(timeColumn("On the device", (row) => row.device_ns, DEVICE_TIME));
  columns.push(...computedColumns(rows));
  if (rows.some((row) => row.shapes !== null)) columns.splice(1, 0, SHAPES);
  return columns;
}

const DEVICE_TIME = "Of the kernels and copies that were launched in them";
const SHAPES: TableColumn<CallSums> = {
  title: "Shapes",
  value: formatShapes,
  show: (row) => <Name text={formatShapes(row) ?? "–"} maxLength={80} />,
};

function formatShapes({ shapes, num_rows }: CallSums): string | null {
  return num_rows === 1 ? shapes : `${num_rows} different`;
}

function facts(group: CallSums, rows: OperatorRow[]): [string, string][] {
  return [
    ["Calls", formatCount(group.num_calls)],
    ["Self time", formatDuration(group.self_ns)],
    ["Time", formatDuration(group.total_ns)],
    ["Longest call", formatDuration(group.max_ns)],
    ["On the device", formatDuration(group.device_ns)],
    ...computedFacts(group),
    ["Shapes", shapesOf(rows.filter((row) => row.name === group.name))],
  ];
}

/** The largest time first. */
function shapesOf(rows: OperatorRow[]): string {
  const known = rows.filter((row) => row.shapes !== null).sort((one, other) => other.self_ns - one.self_ns);
  const first = known.slice(0, 20).map((row) => `${row.shapes}: ${formatDuration(row.self_ns)}`);
  if (!first.length) return "not recorded";
  return first.join("; ") + (known.length > first.length ? `; and ${known.length - first.length} more` : "");
}
