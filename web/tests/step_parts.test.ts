import { expect, test } from "vitest";
import type { StepRow } from "../src/page_data";
import { meanStep, partsOf, rankSteps, sumOf } from "../src/step_parts";

const NOTHING = Object.fromEntries(
  "between evaluation evaluation_inside data_wait forward backward optimizer sync gc python communication_wait"
    .split(" ")
    .map((name) => [`${name}_ns`, null]),
);

function step(row: Partial<StepRow>): StepRow {
  return { rank: 0, step: 0, begin_ns: 0, duration_ns: 100, device_busy_ns: null, ...NOTHING, ...row } as StepRow;
}

test("a wait within the forward pass is counted once", () => {
  const parts = partsOf(step({ forward_ns: 70, sync_ns: 50, backward_ns: 20, python_ns: 10 }));

  expect(parts).toMatchObject({ forward: 20, sync: 50, backward: 20, other: 10 });
  expect(sumOf(parts)).toBe(100);
});

test("what no column names is with Python", () => {
  expect(partsOf(step({ forward_ns: 30, python_ns: 20 }))).toMatchObject({ forward: 30, other: 70 });
});

test("an evaluation within a step is with the one after it, and not with Python", () => {
  const parts = partsOf(step({ forward_ns: 20, python_ns: 10, evaluation_inside_ns: 50, evaluation_ns: 7 }));

  expect(parts).toMatchObject({ forward: 20, evaluation: 57, other: 30 });
  expect(sumOf(parts)).toBe(107);
});

test("the parts of all steps add up to the recorded time, where batches are fetched between steps", () => {
  const first = step({ step: 1, between_ns: 3, evaluation_ns: 7, forward_ns: 60, python_ns: 40 });
  const second = step({ step: 2, begin_ns: 140, data_wait_ns: 40, forward_ns: 80, python_ns: 10 });

  const sums = rankSteps([second, first]).map(({ parts }) => sumOf(parts));

  expect(sums).toEqual([110, 130]);
});

test("a step lasts until the next one begins, on each rank", () => {
  const rows = [0, 1].flatMap((rank) => [1, 2, 3].map((at) => step({ rank, step: at, begin_ns: at * 150 })));
  expect(meanStep(rows)).toBe(150);
  expect(meanStep([step({})])).toBe(100);
  expect(meanStep([])).toBeNull();
});
