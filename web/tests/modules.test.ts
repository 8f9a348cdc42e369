import { expect, test } from "vitest";
import { callsWithin, totalsOf } from "../src/modules/calls";
import { endOf, findRow, rowsAround, rowsWithInner, titleOf, visibleRows } from "../src/modules/tree";
import type { Column, Module, ModuleCallSums, Modules } from "../src/page_data";
import type { Payload } from "../src/payload";
import { TimelineData } from "../src/timeline/data";
import { spansOfModules } from "../src/timeline/module_spans";
import { colourOfName, filteredPalette, type Palette } from "../src/timeline/palette";
import { longestIn, summarizeRange } from "../src/timeline/range";
import { findMatches, nextMatch } from "../src/timeline/search";
import { fillStrip } from "../src/timeline/pixel_row";

/** A model with three blocks, each with a part, and a head; then the optimizer. */
const ROWS = (
  [
    [0, "Model"],
    [1, "Model.0", "Model.1", "Model.2"],
    [2, "Model.0.mlp", "Model.1.mlp", "Model.2.mlp"],
    [1, "Model.head"],
    [0, "(optimizer)"],
  ] as [number, ...string[]][]
).map(([level, ...names]) => {
  const title = names[0].split(".").slice(level).join(".");
  return { level, names, title: names.length > 1 ? `${title} (${names.length}x)` : title };
}) as Module[];

test("a qualified name leads to the row of its block", () => {
  const modules = { rows: ROWS } as Modules;
  expect(["Model", "Model.2", "Model.1.mlp", "Other", undefined].map((name) => findRow(modules, name))).toEqual([
    ...[0, 1, 2, null, null],
  ]);
  expect(findRow(undefined, "Model")).toBe(null);
});

test("a row contains those below it with a larger level", () => {
  expect(ROWS.map((_, at) => endOf(ROWS, at))).toEqual([4, 3, 3, 4, 5]);
  expect(ROWS.map((_, at) => rowsAround(ROWS, at))).toEqual([[], [0], [1, 0], [0], []]);
  expect(rowsWithInner(ROWS)).toEqual([0, 1]);
});

test("the title of a row is its name, of repeated blocks with those around it", () => {
  expect([0, 3, 1, 2].map((at) => titleOf(ROWS, at))).toEqual([
    ...["Model", "Model.head", "Model / 0 (3x)", "Model / 0 (3x) / mlp (3x)"],
  ]);
});

test("rows inside a closed row are hidden", () => {
  expect(visibleRows(ROWS, new Set())).toEqual([0, 4]);
  expect(visibleRows(ROWS, new Set([0]))).toEqual([0, 1, 3, 4]);
  expect(visibleRows(ROWS, new Set([1]))).toEqual([0, 4]);
  expect(visibleRows(ROWS, new Set([0, 1]))).toEqual([0, 1, 2, 3, 4]);
});

/** Calls whose columns are their numbers. */
const CALLS = {
  texts: ["operator", "compute", "mm", "relu"],
  modules: [0, 2, 2, 2, 3],
  kinds: [0, 0, 0, 1, 0],
  names: [2, 2, 3, 2, 2],
  num_calls: [1, 3, 1, 6, 2],
  total_ns: [10, 30, 7, 60, 5],
  self_ns: [10, 20, 7, 60, 5],
  max_ns: [10, 15, 7, 11, 3],
  device_ns: [0, 40, 0, 60, 0],
} as unknown as ModuleCallSums;
const PAYLOAD = { numbers: (column: Column) => column } as unknown as Payload;

test("a module has the calls of the rows inside it, by name and kind", () => {
  const within = (of: "operators" | "kernels", first: number, end: number) =>
    callsWithin(PAYLOAD, CALLS, of, first, end).map(({ name, num_calls, total_ns, self_ns, mean_ns, max_ns }) => {
      return [name, num_calls, total_ns, self_ns, mean_ns, max_ns];
    });
  expect(within("operators", 0, 4)).toEqual([
    ["mm", 6, 45, 35, 7.5, 15],
    ["relu", 1, 7, 7, 7, 7],
  ]);
  expect(within("operators", 3, 4)).toEqual([["mm", 2, 5, 5, 2.5, 3]]);
  expect(within("kernels", 1, 3)).toEqual([["mm", 6, 60, 60, 10, 11]]);
  expect(within("kernels", 4, 5)).toEqual([]);
});

test("the calls of a module have a total, and one of each kind", () => {
  const total = (kind: string, num_calls: number, ns: number) => ({ kind, num_calls, total_ns: ns, self_ns: ns });
  const kernels = callsWithin(PAYLOAD, CALLS, "kernels", 0, 4);
  expect(totalsOf(kernels)).toEqual([total("", 6, 60), total("compute", 6, 60)]);
  expect(totalsOf(callsWithin(PAYLOAD, CALLS, "operators", 0, 4))).toEqual([
    { kind: "", num_calls: 7, total_ns: 52, self_ns: 42 },
  ]);
});

/** Steps in which a span of module 1, of module 2 and of none lie side by side. */
const DATA = new TimelineData(
  ["step", "mm"],
  [{ rank: 0, kind: "thread", name: "thread", process: "", row_begins: [0, 1, 4], num_left_out: 0 }],
  {
    begins: Float64Array.of(0, 0, 40, 80),
    durations: Float64Array.of(100, 20, 20, 20),
    names: Uint32Array.of(0, 1, 1, 1),
    categories: [0, 0, 0, 0],
    details: [0, 0, 0, 0],
    stacks: [0, 0, 0, 0],
    launches: new Uint32Array(4),
    modules: [0, 2, 3, 0],
  },
);

test("a module has its spans, and those of the rows inside", () => {
  expect([...spansOfModules(DATA, 1, 2)]).toEqual([0, 1, 0, 0]);
  expect([...spansOfModules(DATA, 1, 3)]).toEqual([0, 1, 1, 0]);
});

test("spans of other modules are grey", () => {
  const palette = { names: Uint32Array.of(7, 8), grey: 1 } as Palette;
  const pixels = new Uint32Array(5);
  fillStrip(
    pixels,
    DATA,
    DATA.rows[1],
    { from: 0, to: 100 },
    filteredPalette(palette, null, spansOfModules(DATA, 1, 2)),
  );
  expect([...pixels]).toEqual([8, 0, 1, 0, 1]);
});

test("a search, a range and the table of spans are of the chosen module", () => {
  const shown = spansOfModules(DATA, 1, 3);
  const matches = findMatches(DATA, "mm", shown)!;
  expect(matches.count).toBe(2);
  expect([null, 1, 2].map((from) => nextMatch(DATA, matches, from, true))).toEqual([1, 2, 1]);
  const range = { from: 0, to: 100 };
  expect(longestIn(DATA, [0, 1], range, 9, shown)).toEqual({ spans: [1, 2], count: 2 });
  expect(summarizeRange(DATA, [0, 1], range, shown)).toEqual([
    { name: "mm", count: 2, totalNs: 40, selfNs: 40, longest: 1 },
  ]);
});

test("modules of repeated blocks have one colour, and no colour of a phase", () => {
  expect(colourOfName("GPT.layers.3.mlp", "module")).toEqual(colourOfName("GPT.layers.11.mlp", "module"));
  expect(colourOfName("Net.backward", "module")).not.toEqual(colourOfName("Net.backward", "cpu_op"));
});
