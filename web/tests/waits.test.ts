import { expect, test } from "vitest";
import type { CollectiveRow } from "../src/page_data";
import { lateRanks, waitsOf } from "../src/ranks/waits";

function call(late_rank: number | null, waits_ns: number[] | null): CollectiveRow {
  return { ranks: [0, 4], late_rank, waits_ns } as CollectiveRow;
}

const CALLS = [call(4, [30, 0]), call(4, [10, 0]), call(0, [0, 5]), call(null, null)];

test("waits are summed by who waited and for whom", () => {
  expect(waitsOf(CALLS)).toEqual({
    ranks: [0, 4],
    waited: [
      [0, 40],
      [5, 0],
    ],
  });
});

test("the rank for which most was waited is first", () => {
  expect(lateRanks(CALLS)).toEqual([
    { rank: 4, numCalls: 2, totalNs: 40, longestNs: 30 },
    { rank: 0, numCalls: 1, totalNs: 5, longestNs: 5 },
  ]);
});
