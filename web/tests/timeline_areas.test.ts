import { expect, test } from "vitest";
import type { Finding, StepRow } from "../src/page_data";
import { TimelineData, type LeftOutColumns } from "../src/timeline/data";
import { Fold } from "../src/timeline/fold";
import { outlinedBy } from "../src/timeline/outlined_spans";
import { leftOutIn, summarizeRange } from "../src/timeline/range";
import { formatSteps } from "../src/timeline/ruler";
import { Stage } from "../src/timeline/stage";

type Box = [name: string, begin: number, duration: number];

/** A track per rank, with one row of spans. */
function timeline(ranks: Box[][], leftOut?: LeftOutColumns): TimelineData {
  const boxes = ranks.flat();
  const texts = [...new Set(boxes.map(([name]) => name))];
  let place = 0;
  const tracks = ranks.map((row, rank) => {
    const row_begins = [place, (place += row.length)];
    return { rank, kind: "thread", name: "main", process: "", row_begins, num_left_out: 0 };
  });
  const columns = {
    begins: Float64Array.from(boxes, ([, begin]) => begin),
    durations: Float64Array.from(boxes, ([, , duration]) => duration),
    names: Uint32Array.from(boxes, ([name]) => texts.indexOf(name)),
    ...{ categories: boxes.map(() => -1), details: boxes.map(() => 0), stacks: boxes.map(() => 0) },
    launches: new Uint32Array(boxes.length),
  };
  return new TimelineData(texts, tracks, columns, undefined, undefined, undefined, leftOut);
}

const step = (rank: number | null, step: number, begin_ns: number, duration_ns: number) =>
  ({ rank, step, begin_ns, duration_ns }) as StepRow;

function finding(kind: string, where: Partial<Finding["where"]>): Finding {
  return { kind, title: kind, where: { ranks: [], steps: [], spans: [], lines: [], ...where } } as Finding;
}

test("gaps between windows are folded, and each moment has one place, there and back", () => {
  const fold = new Fold([
    [0, 1000],
    [1_000_000, 1_001_000],
    [1_001_010, 1_002_000],
  ]);

  expect(fold.gaps).toHaveLength(1);
  const { from, to, lengthNs } = fold.gaps[0];
  expect([from, lengthNs]).toEqual([1000, 999_000]);
  expect(to - from).toBeLessThan(200);
  for (const time of [-5, 0, 500, 1000, 400_000, 1_000_000, 1_000_500, 1_001_005, 2_000_000]) {
    expect(fold.real(fold.folded(time))).toBeCloseTo(time, 5);
  }
  expect(fold.folded(1_000_500) - fold.folded(1_000_100)).toBeCloseTo(400);
  expect(fold.lengthOf(fold.folded(500), fold.folded(1_000_500))).toBeCloseTo(1_000_000);
  expect(fold.recordedIn(fold.folded(500), fold.folded(1_000_500))).toBeCloseTo(1000);
  expect(fold.segments(0, fold.folded(1_002_000)).map(({ later }) => Math.round(later))).toEqual([
    0,
    Math.round(lengthNs - (to - from)),
  ]);
});

test("without windows, or with one, nothing is folded", () => {
  for (const windows of [[], [[5, 10]] as [number, number][]]) {
    const fold = new Fold(windows);
    expect([fold.gaps, fold.folded(7), fold.real(7)]).toEqual([[], 7, 7]);
  }
});

test("of an area it is known how many spans are left out there, and not of others", () => {
  const leftOut = { cellNs: 100, tracks: [0, 0, 1], cells: [0, 9, 1], counts: [5, 7, 11] };
  const data = timeline([[["a", 0, 1000]], [["b", 0, 1000]]], leftOut);
  const fold = new Fold();

  expect(leftOutIn(data, fold, [0], { from: 0, to: 500 })).toBe(5);
  expect(leftOutIn(data, fold, [0, 1], { from: 0, to: 950 })).toBe(23);
  expect(leftOutIn(data, fold, [1], { from: 300, to: 800 })).toBe(0);
  expect(summarizeRange(data, [0], { from: 0, to: 500 })).toMatchObject([{ name: "a", count: 1, totalNs: 500 }]);
});

test("the ruler says which step it is wherever the reader is", () => {
  const steps = [step(0, 3, 100, 50), step(0, 4, 200, 50)];
  const text = (from: number, to = from) => formatSteps(steps, { from, to });

  expect([text(0), text(100), text(120), text(149)]).toEqual(["Before step 3", "Step 3", "Step 3", "Step 3"]);
  expect([text(170), text(200), text(300)]).toEqual(["After step 3, before 4", "Step 4", "After step 4"]);
  expect([text(0, 400), text(110, 120)]).toEqual(["Steps 3 to 4", "Step 3"]);
  expect(formatSteps([], { from: 0, to: 1 })).toBe("No steps");
});

test("a finding's spans are those that it names, on its ranks and in its steps", () => {
  const boxes: Box[] = [
    ["load", 0, 10],
    ["aten::mm", 20, 10],
    ["load", 100, 10],
  ];
  const data = timeline([boxes, boxes]);
  const steps = [0, 1].flatMap((rank) => [step(rank, 1, 0, 50), step(rank, 2, 90, 50)]);
  const spans = (where: Partial<Finding["where"]>) => outlinedBy(finding("straggler", where), data, steps).spans;

  expect(spans({ spans: ["load"] })).toEqual([0, 2, 3, 5]);
  expect(spans({ spans: ["load"], ranks: [1] })).toEqual([3, 5]);
  expect(spans({ spans: ["load"], ranks: [1], steps: [2] })).toEqual([5]);
});

test("of a finding that names a line its frames are outlined, and of one that names nothing its steps", () => {
  const data = timeline([
    [
      ["step 1", 0, 50],
      ["src/train.py(21): save", 60, 10],
      ["src/train.py(210): other", 75, 5],
    ],
  ]);
  expect(outlinedBy(finding("blocked", { lines: ["train.py:21"] }), data, []).spans).toEqual([1]);
  expect(outlinedBy(finding("processor_contention", {}), data, []).spans).toEqual([0]);
});

test("pinned tracks keep their order, and show their rank", () => {
  const stage = new Stage(timeline([[["a", 0, 1]], [["b", 0, 1]]]), [], []);

  stage.pin([1, 0, 1, 99]);
  expect(stage.pins).toEqual([1, 0]);
  expect(stage.pinned.lanes.map(({ title }) => title)).toEqual(["Rank 1: main", "Rank 0: main"]);
  stage.togglePin(1);
  expect(stage.pinned.lanes.map(({ title, unit }) => [title, unit])).toEqual([["Rank 0: main", 0]]);
});

test("the ruler shows the steps of the rank in a link", () => {
  const stage = new Stage(timeline([[["a", 0, 1]], [["b", 0, 1]]]), [], [step(0, 3, 0, 1), step(1, 3, 5, 1)]);
  stage.goToRank(1);
  expect(stage.steps).toMatchObject([{ rank: 1, begin_ns: 5 }]);
});
