import type { ComponentChildren, RefObject } from "preact";
import { useMemo, useState } from "preact/hooks";
import { counted, formatCount } from "../format";
import { readLink, updateLink } from "../link";
import "./table.css";
import { CopyButton } from "./copy";
import { Name } from "./name";
import { useShownColumns } from "./shown_columns";
import { Explained } from "./term";
import {
  filledColumns,
  hasNumbers,
  matchingRows,
  sortedRows,
  toTsv,
  type Sorting,
  type TableColumn,
} from "./table_rows";

export type { TableColumn } from "./table_rows";

interface TableProps<Row> {
  caption: string;
  columns: TableColumn<Row>[];
  rows: Row[];
  sortedBy?: string;
  /** Text of a row for the filter; without it there is no filter. */
  filterText?: (row: Row) => string;
  noun?: string;
  onChoose?: (row: Row) => void;
  maxRows?: number;
  /** Key of a row, where rows are added and removed. */
  rowKey?: (row: Row) => string;
  /** Keep columns without values: they may get some, or show more than their values. */
  hasAllColumns?: boolean;
  /** Store the filter (`q`) and the order (`sort`) in the link; for one table per view. */
  isLinked?: boolean;
  /** Further controls. */
  children?: ComponentChildren;
}

const MAX_ROWS = 200;

/** A table to sort, filter and copy. The page has the first rows only, until the reader requests more. */
export function Table<Row>(props: TableProps<Row>) {
  const { rows, noun = "row", filterText } = props;
  const columns = useMemo(
    () => (props.hasAllColumns ? props.columns : filledColumns(props.columns, rows)),
    [props.columns, rows],
  );
  const [sorting, setSorting] = useLinkedSorting(props);
  const [filter, setFilter] = useState((props.isLinked && readLink().q) || "");
  const [maxRows, setMaxRows] = useState(props.maxRows ?? MAX_ROWS);
  const { shown, button, scroller } = useShownColumns(columns, sorting.title);
  const matching = useMemo(() => matchingRows(rows, filter, filterText), [rows, filter]);
  const sorted = useMemo(() => sortedRows(matching, columns, sorting), [matching, columns, sorting]);
  const onFilter = (text: string) => {
    setFilter(text);
    if (props.isLinked) updateLink({ q: text || undefined });
  };
  return (
    <div class="table-box">
      <div class="table-bar">
        {filterText && <Filter caption={props.caption} filter={filter} onFilter={onFilter} />}
        {props.children}
        <span role="status">
          {filter ? `${formatCount(matching.length)} of ${counted(rows.length, noun)}` : counted(rows.length, noun)}
        </span>
        <CopyButton title="Copy as TSV" text={() => toTsv(columns, sorted)} />
        {button}
      </div>
      <Rows
        {...props}
        columns={shown}
        rows={sorted.slice(0, maxRows)}
        sorting={sorting}
        onSort={setSorting}
        scroller={scroller}
      />
      {sorted.length > maxRows && (
        <button type="button" onClick={() => setMaxRows(maxRows * 5)}>
          {`Show more (${counted(sorted.length - maxRows, noun)} hidden)`}
        </button>
      )}
    </div>
  );
}

/** The order of rows, stored in the link as the title of a column, after "-" if descending. */
function useLinkedSorting<Row>({ sortedBy = "", isLinked }: TableProps<Row>): [Sorting, (sorting: Sorting) => void] {
  const [sorting, setSorting] = useState<Sorting>(() => {
    const linked = isLinked ? readLink().sort : undefined;
    if (!linked) return { title: sortedBy, isRising: false };
    return { title: linked.replace(/^-/, ""), isRising: !linked.startsWith("-") };
  });
  const sort = (sorting: Sorting) => {
    setSorting(sorting);
    if (isLinked) updateLink({ sort: `${sorting.isRising ? "" : "-"}${sorting.title}` });
  };
  return [sorting, sort];
}

function Filter(props: { caption: string; filter: string; onFilter: (text: string) => void }) {
  return (
    <input
      type="search"
      aria-label={`Filter: ${props.caption}`}
      placeholder="Filter"
      value={props.filter}
      onInput={(event) => props.onFilter(event.currentTarget.value)}
    />
  );
}

interface RowsProps<Row> extends TableProps<Row> {
  sorting: Sorting;
  onSort: (sorting: Sorting) => void;
  scroller: RefObject<HTMLElement | null>;
}

function Rows<Row>({ caption, columns, rows, sorting, onSort, scroller, onChoose, rowKey }: RowsProps<Row>) {
  const areNumbers = columns.map((column) => hasNumbers(column, rows));
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keys
    <section class="table-scroll" ref={scroller} aria-label={caption} tabIndex={0}>
      <table>
        <caption class="for-readers">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column, at) => (
              <Heading
                key={column.title}
                column={column}
                isNumber={areNumbers[at]}
                order={sorting.title === column.title ? (sorting.isRising ? "ascending" : "descending") : "none"}
                onSort={onSort}
              />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={rowKey?.(row) ?? at}>
              {columns.map((column, at) => (
                <Cell
                  key={column.title}
                  row={row}
                  column={column}
                  className={areNumbers[at] ? "number" : (column.width ?? (at === 0 ? "wide" : undefined))}
                  onChoose={at === 0 ? onChoose : undefined}
                />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface HeadingProps<Row> {
  column: TableColumn<Row>;
  isNumber: boolean;
  order: "ascending" | "descending" | "none";
  onSort: (sorting: Sorting) => void;
}

const ARROWS = { ascending: " ▲", descending: " ▼", none: "" };

/** A heading that sorts by its column: numbers descending and texts ascending first, then reversed. */
function Heading<Row>({ column, isNumber, order, onSort }: HeadingProps<Row>) {
  const isRising = order === "none" ? !isNumber : order === "descending";
  const sort = () => onSort({ title: column.title, isRising });
  const arrow = <span aria-hidden="true">{ARROWS[order]}</span>;
  return (
    <th aria-sort={order} class={isNumber ? "number" : undefined} scope="col">
      {column.help ? (
        <Explained word={column.title} meaning={column.help} onClick={sort}>
          {arrow}
        </Explained>
      ) : (
        <button type="button" onClick={sort}>
          {column.title}
          {arrow}
        </button>
      )}
    </th>
  );
}

interface CellProps<Row> {
  row: Row;
  column: TableColumn<Row>;
  className?: string;
  onChoose?: (row: Row) => void;
}

function Cell<Row>({ row, column, className, onChoose }: CellProps<Row>) {
  const value = column.value(row);
  const shown = column.show?.(row) ?? <Plain value={value} />;
  const content = typeof shown === "string" ? <span>{shown}</span> : shown;
  return (
    <td class={className}>
      {column.whole && typeof value === "number" ? <Bar part={value} whole={column.whole} /> : null}
      {onChoose ? (
        <button type="button" class="as-link" onClick={() => onChoose(row)}>
          {content}
        </button>
      ) : (
        content
      )}
    </td>
  );
}

/** A bar for a share. */
function Bar({ part, whole }: { part: number; whole: number }) {
  return (
    <span class="share" aria-hidden="true">
      <span style={{ width: `${100 * Math.min(1, Math.max(0, part / whole))}%` }} />
    </span>
  );
}

function Plain({ value }: { value: string | number | null }) {
  if (typeof value === "string") return <Name text={value} />;
  return <span>{formatCount(value)}</span>;
}
