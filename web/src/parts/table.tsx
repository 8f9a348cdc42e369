import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { counted } from "../format";
import { Name } from "./name";

/** A column of a table. `value` is what rows are sorted by and what is copied; `show` how a cell looks. */
export interface TableColumn<Row> {
  title: string;
  value: (row: Row) => string | number | null;
  show?: (row: Row) => ComponentChildren;
  /** The part of a whole, 0 to 1, which is drawn as a bar behind the number. */
  share?: (row: Row) => number | null;
  help?: string;
}

interface TableProps<Row> {
  caption: string;
  columns: TableColumn<Row>[];
  rows: Row[];
  sortedBy?: string;
  /** The texts of a row that the filter looks in; without it there is no filter. */
  filterText?: (row: Row) => string;
  noun?: string;
  onChoose?: (row: Row) => void;
  most?: number;
}

const MOST_ROWS = 200;

/** Rows to sort, filter and copy. Only the first ones are in the page, until the reader asks for more. */
export function Table<Row>(props: TableProps<Row>) {
  const { columns, rows, noun = "row", filterText } = props;
  const [sorting, setSorting] = useState({ title: props.sortedBy ?? "", isRising: false });
  const [filter, setFilter] = useState("");
  const [most, setMost] = useState(props.most ?? MOST_ROWS);
  const matching = useMemo(() => matchingRows(rows, filter, filterText), [rows, filter, filterText]);
  const sorted = useMemo(() => sortedRows(matching, columns, sorting), [matching, columns, sorting]);
  return (
    <div class="table-box">
      <div class="table-bar">
        {filterText && (
          <input
            type="search"
            aria-label={`Filter: ${props.caption}`}
            placeholder="Filter"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        )}
        <span role="status">
          {filter ? `${matching.length} of ${counted(rows.length, noun)}` : counted(rows.length, noun)}
        </span>
        <button type="button" onClick={() => navigator.clipboard.writeText(toTsv(columns, sorted))}>
          Copy as TSV
        </button>
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keys */}
      <section class="table-scroll" aria-label={props.caption} tabIndex={0}>
        <table>
          <caption class="for-readers">{props.caption}</caption>
          <thead>
            <tr>
              {columns.map((column) => (
                <Heading key={column.title} column={column} sorting={sorting} onSort={setSorting} />
              ))}
            </tr>
          </thead>
          <tbody>
            {sorted.slice(0, most).map((row, at) => (
              <Row key={at} row={row} columns={columns} onChoose={props.onChoose} />
            ))}
          </tbody>
        </table>
      </section>
      {sorted.length > most && (
        <button type="button" onClick={() => setMost(most * 5)}>
          {`Show more: ${counted(sorted.length - most, noun)} are not shown`}
        </button>
      )}
    </div>
  );
}

interface Sorting {
  title: string;
  isRising: boolean;
}

function Heading<Row>(props: { column: TableColumn<Row>; sorting: Sorting; onSort: (sorting: Sorting) => void }) {
  const { column, sorting, onSort } = props;
  const isSorted = sorting.title === column.title;
  const order = isSorted ? (sorting.isRising ? "ascending" : "descending") : "none";
  return (
    <th aria-sort={order} title={column.help}>
      <button type="button" onClick={() => onSort({ title: column.title, isRising: isSorted && !sorting.isRising })}>
        {column.title}
        <span aria-hidden="true">{isSorted ? (sorting.isRising ? " ▲" : " ▼") : ""}</span>
      </button>
    </th>
  );
}

function Row<Row>(props: { row: Row; columns: TableColumn<Row>[]; onChoose?: (row: Row) => void }) {
  const { row, columns, onChoose } = props;
  return (
    <tr>
      {columns.map((column, at) => {
        const share = column.share?.(row);
        const content = column.show?.(row) ?? <Plain value={column.value(row)} />;
        const isNumber = typeof column.value(row) === "number";
        return (
          <td key={column.title} class={isNumber ? "number" : undefined}>
            {share != null && <meter class="share" min={0} max={1} value={share} aria-hidden="true" />}
            {at === 0 && onChoose ? (
              <button type="button" class="as-link" onClick={() => onChoose(row)}>
                {content}
              </button>
            ) : (
              content
            )}
          </td>
        );
      })}
    </tr>
  );
}

function Plain({ value }: { value: string | number | null }) {
  return typeof value === "string" ? <Name text={value} /> : <span>{value ?? "–"}</span>;
}

function matchingRows<Row>(rows: Row[], filter: string, filterText?: (row: Row) => string): Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length || !filterText) return rows;
  return rows.filter((row) => {
    const text = filterText(row).toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** Unknown values come last in both directions. */
export function sortedRows<Row>(rows: Row[], columns: TableColumn<Row>[], sorting: Sorting): Row[] {
  const column = columns.find((column) => column.title === sorting.title);
  if (!column) return rows;
  const direction = sorting.isRising ? 1 : -1;
  return [...rows].sort((one, other) => {
    const [a, b] = [column.value(one), column.value(other)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return direction * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  });
}

/** Rows for a spreadsheet. A cell that it would take for a formula is quoted by an apostrophe. */
export function toTsv<Row>(columns: TableColumn<Row>[], rows: Row[]): string {
  const lines = [
    columns.map((column) => column.title),
    ...rows.map((row) => columns.map((column) => column.value(row))),
  ];
  return lines.map((cells) => cells.map(tsvCell).join("\t")).join("\n");
}

function tsvCell(value: string | number | null): string {
  if (value === null || typeof value === "number") return String(value ?? "");
  const text = value.replace(/[\t\r\n]+/g, " ");
  return /^[=+\-@]/.test(text) ? `'${text}` : text;
}
