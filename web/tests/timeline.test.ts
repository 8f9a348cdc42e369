import { expect, test } from "vitest";
import { formatValue, linePoints, valueAt } from "../src/timeline/counters";
import { TimelineData } from "../src/timeline/data";
import { colourOfName } from "../src/timeline/palette";
import { longestIn, summarizeRange } from "../src/timeline/range";
import { callersOf, launchedBy } from "../src/timeline/relations";
import { findMatches, longestMatch, nextMatch, matchNumber } from "../src/timeline/search";
import { fillStrip, spanAt } from "../src/timeline/pixel_row";
import { viewOf, within, zoomed } from "../src/timeline/view";

type Box = [name: string, begin: number, duration: number, launch?: number];

/** Tracks with rows of spans, which are numbered over all rows. */
function timeline(...tracks: Box[][][]): TimelineData {
  const boxes = tracks.flat(2);
  const texts = [...new Set(boxes.map(([name]) => name))];
  let place = 0;
  const shown = tracks.map((rows, at) => {
    const row_begins = [place, ...rows.map((row) => (place += row.length))];
    return { rank: 0, kind: "thread", name: `thread ${at}`, process: "", row_begins, num_left_out: 0 };
  });
  return new TimelineData(texts, shown, {
    begins: Float64Array.from(boxes, ([, begin]) => begin),
    durations: Float64Array.from(boxes, ([, , duration]) => duration),
    names: Uint32Array.from(boxes, ([name]) => texts.indexOf(name)),
    categories: boxes.map(() => -1),
    details: boxes.map(() => 0),
    stacks: boxes.map(() => 0),
    launches: Uint32Array.from(boxes, ([, , , launch]) => (launch === undefined ? 0 : launch + 1)),
  });
}

const NESTED = timeline(
  [
    [
      ["step", 0, 100],
      ["step", 100, 100],
    ],
    [
      ["forward", 10, 30],
      ["backward", 50, 40],
      ["forward", 110, 30],
    ],
    [["launch", 60, 5]],
  ],
  [[["kernel", 70, 20, 5]]],
);

function strip(data: TimelineData, width: number, from: number, to: number): string {
  const pixels = new Uint32Array(width);
  const names = Uint32Array.from(data.texts, (_, at) => at + 1);
  fillStrip(pixels, data, data.rows[0], { from, to }, { names, grey: 0, shown: null });
  return Array.from(pixels, (pixel) => (pixel ? data.texts[pixel - 1] : ".")).join("");
}

test("boxes are as long as their spans, with a gap between them where there is room", () => {
  const data = timeline([
    [
      ["a", 0, 50],
      ["b", 50, 20],
      ["c", 90, 100],
    ],
  ]);
  expect(strip(data, 10, 0, 100)).toBe("aaaa.bb..c");
});

test("a span that is shorter than a pixel is a pixel wide, and does not hide a longer one", () => {
  const data = timeline([
    [
      ["a", 12, 1],
      ["b", 31, 1],
      ["c", 32, 40],
    ],
  ]);
  expect(strip(data, 10, 0, 100)).toBe(".a.ccc....");
});

test("thousands of spans in a pixel are one pixel", () => {
  const many: Box[] = Array.from({ length: 10_000 }, (_, at) => ["a", 2 * at, 1]);
  expect(strip(timeline([many]), 10, 0, 40_000)).toBe("aaaaa.....");
});

test("the span at a time is the one whose box is there, also where the box is wider than the span", () => {
  const data = timeline([
    [
      ["a", 12, 1],
      ["b", 50, 20],
    ],
  ]);
  expect([11, 12, 15, 60, 71, 90].map((time) => spanAt(data, data.rows[0], time, 2))).toEqual([0, 0, 0, 1, 1, null]);
});

test("self time is without what is called", () => {
  expect([0, 1, 2, 3].map((span) => NESTED.selfTime(span))).toEqual([30, 70, 30, 35]);
});

test("a span knows what it is in", () => {
  expect(NESTED.ancestors(5)).toEqual([3, 0]);
  expect(NESTED.parent(0)).toBe(null);
  expect(NESTED.parent(6)).toBe(null);
});

test("a kernel leads to its launch and its callers, and those to the kernel", () => {
  expect(callersOf(NESTED, 6).map(({ span }) => NESTED.name(span))).toEqual(["launch", "backward", "step"]);
  expect([5, 3, 0].map((span) => launchedBy(NESTED, span))).toEqual([[6], [6], [6]]);
  expect([2, 1].map((span) => launchedBy(NESTED, span))).toEqual([[], []]);
});

test("matches are found in the order of time, around the end", () => {
  const matches = findMatches(NESTED, "WARD")!;
  expect(matches.count).toBe(3);
  const forward = [null, 2, 3, 4].map((from) => nextMatch(NESTED, matches, from, true));
  expect(forward).toEqual([2, 3, 4, 2]);
  expect([null, 2, 4].map((from) => nextMatch(NESTED, matches, from, false))).toEqual([4, 4, 3]);
  expect([2, 3, 4, 0].map((span) => matchNumber(NESTED, matches, span))).toEqual([1, 2, 3, 0]);
});

test("the longest match is one of the very name that was searched, where there is one", () => {
  const longest = (query: string) => NESTED.name(longestMatch(NESTED, findMatches(NESTED, query)!));
  expect(["ward", "forward", "e"].map(longest)).toEqual(["backward", "forward", "step"]);
});

test("a search for nothing is none, and one without matches has none to go to", () => {
  expect(findMatches(NESTED, "  ")).toBe(null);
  expect(nextMatch(NESTED, findMatches(NESTED, "zebra")!, null, true)).toBe(-1);
});

test("a range has the time within it, and what each name takes itself", () => {
  const rows = [0, 1, 2];
  const summary = summarizeRange(NESTED, rows, { from: 20, to: 120 });
  expect(summary.map(({ name, count, totalNs, selfNs }) => [name, count, totalNs, selfNs])).toEqual([
    ["backward", 1, 40, 35],
    ["step", 2, 100, 30],
    ["forward", 2, 30, 30],
    ["launch", 1, 5, 5],
  ]);
});

test("the longest spans of a range are in the order of time", () => {
  expect(longestIn(NESTED, [0, 1, 2, 3], { from: 0, to: 200 }, 3)).toEqual({ spans: [0, 3, 1], count: 7 });
});

test("zooming keeps what is at the cursor, and stays within the whole", () => {
  expect(zoomed({ from: 0, to: 1000 }, 0.5, 250)).toEqual({ from: 125, to: 625 });
  expect(within({ from: -100, to: 500 }, { from: 0, to: 1000 })).toEqual({ from: 0, to: 600 });
  expect(within({ from: -100, to: 5000 }, { from: 0, to: 1000 })).toEqual({ from: 0, to: 1000 });
});

test("a span to look at is in the middle, and neither a dot nor longer than the view", () => {
  expect(viewOf({ from: 0, to: 1000 }, 600, 100)).toEqual({ from: 150, to: 1150 });
  expect(viewOf({ from: 0, to: 100_000 }, 600, 100)).toEqual({ from: 400, to: 900 });
});

test("phases have the colours that they have in all views, and no other name has one of those as it is", () => {
  const phases = ["event/forward", "autograd::engine", "Optimizer.step#SGD", "ncclDevKernel_AllReduce", "DataLoader"];
  expect(phases.map((name) => colourOfName(name, ""))).toEqual([1, 3, 4, 6, 2].map((colour) => ({ colour, light: 0 })));
  expect(colourOfName("aten::mm", "cpu_op").light).toBeGreaterThan(0);
});

test("a counter has its last value until the next, and a peak between two pixels is seen", () => {
  const counter = {
    rank: 0,
    name: "memory",
    unit: "GiB",
    times: [10, 20, 21, 40],
    values: new Float64Array([1, 9, 2, 3]),
  };
  const memory = { ...counter, min: 0, max: 9 };
  expect([5, 10, 19, 30, 99].map((time) => valueAt(memory, time))).toEqual([null, 1, 1, 2, 3]);
  expect([...linePoints(memory, 4, 0, 40)]).toEqual([1, 9, 9, 3]);
  expect([formatValue(0.05, "GiB"), formatValue(39.7, "%"), formatValue(null, "B")]).toEqual([
    "51.2 MiB",
    "39.7 %",
    "–",
  ]);
});
