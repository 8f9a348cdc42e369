import { expect, test } from "vitest";
import { formatBytes, formatDuration, formatShare, rangesOf } from "../src/format";

test("consecutive numbers are one range", () => {
  expect(rangesOf([11, 12, 13, 17, 19, 20])).toEqual(["11-13", "17", "19-20"]);
  expect(rangesOf([])).toEqual([]);
});

test("a number has three digits that count, and a unit", () => {
  expect([0, 7, 1_234, 45_678_000, 3_600e9].map(formatDuration)).toEqual([
    "0 ns",
    "7 ns",
    "1.23 µs",
    "45.7 ms",
    "60.0 min",
  ]);
  expect([512, 3 * 2 ** 30].map(formatBytes)).toEqual(["512 B", "3.00 GiB"]);
});

test("unknown numbers are a dash", () => {
  expect([formatDuration(null), formatBytes(undefined), formatShare(NaN)]).toEqual(["–", "–", "–"]);
});

test("a small share is not shown as 0", () => {
  expect([0, 0.0002, 0.0006, 0.5].map(formatShare)).toEqual(["0.0 %", "<0.1 %", "0.1 %", "50 %"]);
});
