import { useMemo } from "preact/hooks";
import type { CallingLine } from "../page_data";
import { Choice, useLinkedChoice } from "../parts/choice";
import { Table, type TableColumn } from "../parts/table";
import type { ViewProps } from "../views";
import { BY_LINE, LineTable } from "./calling_lines";
import type { Calls } from "./calls";
import { Chosen, useChosen } from "./chosen_calls";

interface GroupedCallsProps<Row, Grouped> extends Pick<ViewProps, "payload"> {
  caption: string;
  heading: string;
  rows: Row[];
  /** The calls by the line that they came from, where that is known. */
  lines: CallingLine[];
  /** The ways to group the rows. In the first, a row is one `noun`. */
  groupings: string[];
  /** A grouping in which a row's name is no name of calls. */
  withoutNames?: string;
  group: (rows: Row[], by: string) => Grouped[];
  noun: string;
  columns: TableColumn<Grouped>[];
  sortedBy: string;
  filterText: (row: Grouped) => string;
  facts: (row: Grouped) => [string, string][];
}

/** A table of calls, grouped as the reader chooses, also by line. A click on a row shows the calls. */
export function GroupedCalls<Row, Grouped extends Calls>(props: GroupedCallsProps<Row, Grouped>) {
  const { payload, caption, rows, lines, groupings, group, facts } = props;
  const options = [...groupings, ...(lines.length ? [BY_LINE] : [])];
  const [by, setBy] = useLinkedChoice("by", options);
  const groups = useMemo(() => group(rows, by), [rows, by]);
  const { chosen, choose } = useChosen<Grouped>({ payload });
  const choice = options.length > 1 && <Choice title="Group by" options={options} chosen={by} onChoose={setBy} />;
  if (by === BY_LINE) {
    return (
      <>
        <h2>{props.heading}</h2>
        <LineTable caption={`${caption} by line`} rows={lines} hasTimeline={payload.page.timeline !== null}>
          {choice}
        </LineTable>
      </>
    );
  }
  return (
    <>
      <h2>{props.heading}</h2>
      {chosen && <Chosen name={chosen.name} facts={facts(chosen)} onClose={() => choose(null)} />}
      <Table
        caption={caption}
        columns={props.columns}
        rows={groups}
        sortedBy={props.sortedBy}
        filterText={props.filterText}
        noun={by === groupings[0] ? props.noun : "row"}
        onChoose={by === props.withoutNames ? undefined : choose}
        isLinked
      >
        {choice}
      </Table>
    </>
  );
}
