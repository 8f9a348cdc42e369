import type { CallingLine, CallSums } from "../page_data";
import { Choice, useLinkedChoice } from "../parts/choice";
import { Table, type TableColumn } from "../parts/table";
import type { ViewProps } from "../view";
import { BY_LINE, LineTable } from "./calling_lines";
import { rowsBy } from "./calls";
import { CallsPicture } from "./calls_picture";
import { Chosen, useChosen } from "./chosen_calls";

interface GroupedCallsProps extends Pick<ViewProps, "payload"> {
  caption: string;
  heading: string;
  /** Summary of all calls, below the heading. */
  summary?: string | null;
  /** Name of the tables in the data. */
  of: string;
  /** Calls by source line, where recorded. */
  lines: CallingLine[];
  /** Labels of the groupings, by their names in the data. In the first one, a row is one `noun`. */
  groupings: Record<string, string>;
  /** A grouping whose rows are not names of calls. */
  withoutNames?: string;
  noun: string;
  callsTitle: string;
  columns: TableColumn<CallSums>[];
  sortedBy: string;
  wholeNs?: number;
  filterText: (row: CallSums) => string;
  facts: (row: CallSums) => [string, string][];
}

/** A table of calls with a choice of the grouping, also by line. A click on a row shows its calls. */
export function GroupedCalls(props: GroupedCallsProps) {
  const { payload, caption, of, lines, facts } = props;
  const tables = payload.page.call_tables;
  const groupings = Object.entries(props.groupings).filter(([by]) => rowsBy(tables, of, by).length);
  const options = [...groupings.map(([, title]) => title), ...(lines.length ? [BY_LINE] : [])];
  const [chosenTitle, setBy] = useLinkedChoice("by", options);
  const by = groupings.find(([, title]) => title === chosenTitle)?.[0] ?? BY_LINE;
  const { chosen, choose } = useChosen<CallSums>({ payload });
  const choice = options.length > 1 && (
    <Choice title="Group by" options={options} chosen={chosenTitle} onChoose={setBy} />
  );
  if (by === BY_LINE) {
    return (
      <>
        <Head {...props} />
        <LineTable
          caption={`${caption} by line`}
          rows={lines}
          wholeNs={props.wholeNs}
          hasTimeline={payload.page.timeline !== null}
        >
          {choice}
        </LineTable>
      </>
    );
  }
  return (
    <>
      <Head {...props} />
      {chosen && <Chosen name={chosen.name} facts={facts(chosen)} onClose={() => choose(null)} />}
      <Table
        caption={caption}
        columns={props.columns}
        rows={rowsBy(tables, of, by)}
        sortedBy={props.sortedBy}
        filterText={props.filterText}
        noun={by === groupings[0]?.[0] ? props.noun : "row"}
        onChoose={by === props.withoutNames ? undefined : choose}
        isLinked
      >
        {choice}
      </Table>
      <CallsPicture rows={rowsBy(tables, of, "name")} calls={props.callsTitle} />
    </>
  );
}

function Head({ heading, summary }: Pick<GroupedCallsProps, "heading" | "summary">) {
  return (
    <>
      <h2>{heading}</h2>
      {summary && <p class="facts">{summary}</p>}
    </>
  );
}
