import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { navigate, readLink } from "../link";
import type { CallSums } from "../page_data";
import { Table } from "../parts/table";
import { filledColumns, type TableColumn } from "../parts/table_rows";
import type { Payload } from "../payload";
import type { CallKind } from "./call_kinds";

interface CallsTableProps {
  payload: Payload;
  kind: CallKind;
  rows: CallSums[];
  /** Self time of all calls. */
  wholeNs: number;
  /** What a row is, if not one call of the kind. */
  noun?: string;
  maxRows?: number;
  /** Rows are not names of calls. */
  hasNoNames?: boolean;
  /** Further controls. */
  children?: ComponentChildren;
}

/** A table of calls. A click on a name shows its calls in the timeline, or without one the row in full. */
export function CallsTable({ payload, kind, rows, wholeNs, noun = kind.noun, hasNoNames, ...others }: CallsTableProps) {
  const [chosen, setChosen] = useState<CallSums | null>(null);
  const columns = useMemo(() => kind.columns(rows, wholeNs), [kind, rows, wholeNs]);
  const choose = (row: CallSums) => {
    if (!payload.page.timeline) setChosen(row);
    else navigate({ view: "timeline", q: row.name, span: "longest", module: readLink().module });
  };
  return (
    <>
      {chosen && <Chosen row={chosen} columns={columns} onClose={() => setChosen(null)} />}
      <Table
        caption={kind.caption}
        columns={columns}
        rows={rows}
        sortedBy={kind.sortedBy}
        filterText={kind.filterText}
        noun={noun}
        onChoose={hasNoNames ? undefined : choose}
        isLinked
        {...others}
      />
    </>
  );
}

interface ChosenProps {
  row: CallSums;
  columns: TableColumn<CallSums>[];
  onClose: () => void;
}

/** One row in full, with its whole name. */
function Chosen({ row, columns, onClose }: ChosenProps) {
  const [, ...numbers] = filledColumns(columns, [row]);
  return (
    <section class="chosen" aria-label="The selected row">
      <p class="chosen-name">
        <bdi>{row.name}</bdi>
      </p>
      <dl>
        {numbers.map((column) => (
          <div key={column.title}>
            <dt>{column.title}</dt>
            <dd>{column.show?.(row)}</dd>
          </div>
        ))}
      </dl>
      <p class="quiet">This report has no timeline. Without --no-timeline, a click shows the calls in it.</p>
      <button type="button" onClick={onClose}>
        Close
      </button>
    </section>
  );
}
