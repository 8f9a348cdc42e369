import type { ComponentChildren } from "preact";

/** A column of a table. `value` is sorted and copied; `show` renders a cell. */
export interface TableColumn<Row> {
  title: string;
  value: (row: Row) => string | number | null;
  show?: (row: Row) => ComponentChildren;
  /** Unit of `value`, for the heading of copied rows. */
  unit?: string;
  /** The whole of shares: each cell has a bar. */
  whole?: number | null;
  help?: string;
  /** Minimal width of texts; by default, the first column is wide. Short texts and those of a line are never wrapped. */
  width?: "short" | "narrow" | "wide" | "line";
  /** Narrow screens hide the column until the reader requests it. */
  isDetail?: boolean;
}

/** The sorted column, if one has this title. */
export interface Sorting {
  title: string;
  isRising: boolean;
}

/** The columns that have a value in some row. */
export function filledColumns<Row>(columns: TableColumn<Row>[], rows: Row[]): TableColumn<Row>[] {
  return rows.length ? columns.filter((column) => rows.some((row) => column.value(row) !== null)) : columns;
}

export function matchingRows<Row>(rows: Row[], filter: string, filterText?: (row: Row) => string): Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length || !filterText) return rows;
  return rows.filter((row) => {
    const text = filterText(row).toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

const TEXT_ORDER = new Intl.Collator("en", { numeric: true });

/** Unknown values come last in both orders. */
export function sortedRows<Row>(rows: Row[], columns: TableColumn<Row>[], sorting: Sorting): Row[] {
  const column = columns.find((column) => column.title === sorting.title);
  if (!column) return rows;
  const direction = sorting.isRising ? 1 : -1;
  const keyed = rows.map((row) => ({ row, key: column.value(row) }));
  keyed.sort(({ key: a }, { key: b }) => {
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    const order = typeof a === "number" && typeof b === "number" ? a - b : TEXT_ORDER.compare(String(a), String(b));
    return direction * order;
  });
  return keyed.map(({ row }) => row);
}

/** A column is numeric if its first known value is a number. */
export function hasNumbers<Row>(column: TableColumn<Row>, rows: Row[]): boolean {
  const known = rows.find((row) => column.value(row) !== null);
  return known !== undefined && typeof column.value(known) === "number";
}

/** Rows as TSV. A cell that a spreadsheet would read as a formula gets an apostrophe. */
export function toTsv<Row>(columns: TableColumn<Row>[], rows: Row[]): string {
  const lines = [
    columns.map(({ title, unit }) => (unit ? `${title} (${unit})` : title)),
    ...rows.map((row) => columns.map((column) => column.value(row))),
  ];
  return lines.map((cells) => cells.map(tsvCell).join("\t")).join("\n");
}

function tsvCell(value: string | number | null): string {
  if (value === null || typeof value === "number") return String(value ?? "");
  const text = value.replace(/[\t\r\n]+/g, " ");
  return /^\s*[=+\-@]/.test(text) ? `'${text}` : text;
}
