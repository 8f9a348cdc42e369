import { expect, test } from "vitest";
import { columnAt, layOutColumns, timeScale, labelledColumns } from "../src/parts/axis";

const labels = (highest: number, most: number) => timeScale(highest, most).map(({ label }) => label);

test("a scale has round times in one unit, and ends where nothing is higher", () => {
  expect(labels(24_200_000, 4)).toEqual(["0 ms", "10 ms", "20 ms", "30 ms"]);
  expect(labels(6_800_000, 4)).toEqual(["0 ms", "2 ms", "4 ms", "6 ms", "8 ms"]);
  expect(labels(10_000_000, 4)).toEqual(["0 ms", "5 ms", "10 ms"]);
  expect(labels(1_300_000_000, 4)).toEqual(["0.0 s", "0.5 s", "1.0 s", "1.5 s"]);
});

test("a scale of nothing, of a nanosecond and of a day still has two ends", () => {
  for (const highest of [0, 1, 86_400e9]) {
    const scale = timeScale(highest, 4);
    expect(scale.length).toBeGreaterThan(1);
    expect(scale.at(-1)!.value).toBeGreaterThanOrEqual(highest);
  }
});

test("columns of windows stand apart, and a pointer in a gap is at the column before it", () => {
  const places = layOutColumns([3, 4, 5, 26, 27, 49]);
  expect(places).toEqual({
    lefts: [0, 1, 2, 4, 5, 7],
    width: 8,
    gaps: [
      [3, 1],
      [6, 1],
    ],
  });
  expect([0, 1.5, 2.9, 3.5, 4.1, 7.9, 9].map((place) => columnAt(places, place))).toEqual([0, 1, 2, 2, 3, 5, 5]);
});

test("of many columns round numbers are labelled, and the first of each window, as far as there is room", () => {
  const steps = [...Array.from({ length: 20 }, (_, at) => 3 + at), ...Array.from({ length: 20 }, (_, at) => 103 + at)];
  const labelled = labelledColumns(steps, layOutColumns(steps), 8).map((at) => steps[at]);
  expect(labelled).toEqual([3, 10, 15, 20, 103, 110, 115, 120]);
  expect(labelledColumns([7], layOutColumns([7]), 8)).toEqual([0]);
  expect(labelledColumns([], layOutColumns([]), 8)).toEqual([]);
});

test("few columns leave the rest of a minimal width free", () => {
  expect(layOutColumns([4, 5], 8)).toEqual({ lefts: [0, 1], width: 8, gaps: [] });
});
