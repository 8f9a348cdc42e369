import { expect, test } from "vitest";
import { indexAt, stacked, zoomed, type MemorySeries } from "../src/memory/series";
import { Fold } from "../src/timeline/fold";

const SERIES: MemorySeries = {
  categories: ["forward", "backward"],
  colours: [1, 3],
  times: Uint8Array.of(10, 20, 30),
  sizes: [Uint8Array.of(1, 2, 3), Uint8Array.of(10, 20, 5)],
  totals: Uint8Array.of(11, 22, 8),
  peak: 1,
  peakBytes: 22,
  stepEnds: [],
  fold: new Fold(),
};

test("areas are stacked: each begins where the one below ends", () => {
  expect(stacked(SERIES.sizes, 3).map((area) => [...area])).toEqual([
    [1, 2, 3],
    [11, 22, 8],
  ]);
});

test("memory stays as it was until the next moment", () => {
  expect([9, 10, 19, 20, 99].map((time) => indexAt(SERIES.times, time))).toEqual([-1, 0, 0, 1, 2]);
});

test("a zoom keeps the moment under the cursor, and stays within all", () => {
  const whole = { from: 0, to: 100 };
  expect(zoomed(whole, 40, 0.5, whole)).toEqual({ from: 20, to: 70 });
  expect(zoomed({ from: 20, to: 70 }, 40, 4, whole)).toEqual(whole);
});
