import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { formatCount } from "../format";
import { navigate } from "../link";
import type { CallingLine } from "../page_data";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import { timeColumn } from "./calls";

export const BY_LINE = "Name and line";

interface LineTableProps {
  caption: string;
  rows: CallingLine[];
  /** Self time of all calls. */
  wholeNs?: number;
  hasTimeline: boolean;
  /** The control for the grouping. */
  children: ComponentChildren;
}

/** Calls by name and source line of the user's code. */
export function LineTable({ caption, rows, wholeNs, hasTimeline, children }: LineTableProps) {
  const columns = useMemo(() => lineColumns(wholeNs), [wholeNs]);
  return (
    <Table
      caption={caption}
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

function lineColumns(wholeNs?: number): TableColumn<CallingLine>[] {
  return [
    { title: "Name", value: (row) => row.name, show: (row) => <Name text={row.name} maxLength={120} /> },
    { title: "Line", value: (row) => row.line, help: "Where the innermost of your functions begins that called it" },
    { title: "Calls", value: (row) => row.num_calls, show: (row) => formatCount(row.num_calls) },
    timeColumn("Self time", (row) => row.self_ns, undefined, wholeNs),
    timeColumn("Time", (row) => row.total_ns),
    timeColumn("Mean", (row) => row.mean_ns),
    timeColumn("Longest", (row) => row.max_ns),
  ];
}
