import { expect, test } from "vitest";
import { aliveAtEnds, placeAt, stacked, zoomed, type MemorySeries } from "../src/memory/series";

const SERIES: MemorySeries = {
  categories: ["forward", "backward"],
  colours: [1, 3],
  times: Uint8Array.of(10, 20, 30),
  sizes: [Uint8Array.of(1, 2, 3), Uint8Array.of(10, 20, 5)],
  peak: 1,
};

test("areas are stacked: each begins where the one below ends", () => {
  expect(stacked(SERIES.sizes, 3).map((area) => [...area])).toEqual([
    [1, 2, 3],
    [11, 22, 8],
  ]);
});

test("memory stays as it was until the next moment", () => {
  expect([9, 10, 19, 20, 99].map((time) => placeAt(SERIES.times, time))).toEqual([-1, 0, 0, 1, 2]);
});

test("what is alive as a step ends is known where memory was recorded", () => {
  const steps = [1, 15, 40].map((begin_ns, step) => ({ step, begin_ns, duration_ns: 10 }));
  expect(aliveAtEnds(SERIES, steps)).toEqual([
    { step: 0, time: 11, bytes: 11 },
    { step: 1, time: 25, bytes: 22 },
  ]);
});

test("a zoom keeps the moment under the cursor, and stays within all", () => {
  const whole = { from: 0, to: 100 };
  expect(zoomed(whole, 40, 0.5, whole)).toEqual({ from: 20, to: 70 });
  expect(zoomed({ from: 20, to: 70 }, 40, 4, whole)).toEqual(whole);
});
