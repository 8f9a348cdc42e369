import { expect, test } from "vitest";
import { filledColumns, sortedRows, toTsv, type TableColumn } from "../src/parts/table_rows";

const COLUMNS: TableColumn<{ name: string; time: number | null }>[] = [
  { title: "Name", value: (row) => row.name },
  { title: "Time", value: (row) => row.time },
];

test("unknown values come last, however rows are sorted", () => {
  const rows = [
    { name: "a", time: null },
    { name: "b", time: 1 },
    { name: "c", time: 2 },
  ];
  const names = (isRising: boolean) => sortedRows(rows, COLUMNS, { title: "Time", isRising }).map((row) => row.name);
  expect([names(true), names(false)]).toEqual([
    ["b", "c", "a"],
    ["c", "b", "a"],
  ]);
});

test("a copied name is no formula of a spreadsheet, and stays in its cell", () => {
  expect(toTsv(COLUMNS, [{ name: "=HYPERLINK()\tx", time: 3 }])).toBe("Name\tTime\n'=HYPERLINK() x\t3");
});

test("columns without values are hidden, but not those of an empty table", () => {
  expect(filledColumns(COLUMNS, [{ name: "a", time: null }])).toEqual([COLUMNS[0]]);
  expect(filledColumns(COLUMNS, [])).toEqual(COLUMNS);
});
