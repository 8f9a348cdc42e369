import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { navigate } from "../link";
import type { CallingLine } from "../page_data";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import { countColumn, detail, timeColumn } from "../parts/unit_columns";
import type { CallKind } from "./call_kinds";

export const BY_LINE = "Name and line";

interface LineTableProps {
  kind: CallKind;
  rows: CallingLine[];
  /** Self time of all calls. */
  wholeNs: number;
  hasTimeline: boolean;
  /** The control for the grouping. */
  children: ComponentChildren;
}

/** Calls by name and source line of the user's code. */
export function LineTable({ kind, rows, wholeNs, hasTimeline, children }: LineTableProps) {
  const columns = useMemo(() => lineColumns(wholeNs), [wholeNs]);
  return (
    <Table
      caption={`${kind.caption} by line`}
      columns={columns}
      rows={rows}
      sortedBy="Self time"
      filterText={(row) => `${row.name} ${row.line ?? ""}`}
      onChoose={hasTimeline ? (row) => navigate({ view: "timeline", q: row.name }) : undefined}
      isLinked
    >
      {children}
    </Table>
  );
}

function lineColumns(wholeNs: number): TableColumn<CallingLine>[] {
  return [
    { title: "Name", value: (row) => row.name, show: (row) => <Name text={row.name} maxLength={120} /> },
    { title: "Line", value: (row) => row.line, help: "The innermost line of your code that called it" },
    detail(countColumn("Calls", (row) => row.num_calls)),
    timeColumn("Self time", (row) => row.self_ns, undefined, wholeNs),
    ...[
      timeColumn<CallingLine>("Total time", (row) => row.total_ns),
      timeColumn<CallingLine>("Mean", (row) => row.mean_ns),
      timeColumn<CallingLine>("Longest", (row) => row.max_ns),
    ].map(detail),
  ];
}
