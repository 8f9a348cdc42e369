import { expect, test } from "vitest";
import { formatChange, otherSentences, stepSentence, verdictOf } from "../src/compare/words";
import type { Comparison, ComparisonRow } from "../src/page_data";

const STEP = {
  ...{ kind: "step", name: "step", shapes: null, module: null, before: 2e6, after: 2.2e6, unit: "ns" },
  ...{ change: 0.1, interval: [0.08, 0.12], verdict: "slower" },
} as ComparisonRow;

function comparison(step: Partial<ComparisonRow>, more_steps: number | null = null): Comparison {
  return { rows: [{ ...STEP, ...step }], threshold: 0.05, more_steps, notes: [] } as unknown as Comparison;
}

test("the first sentence says what became of the step", () => {
  expect(stepSentence(comparison({}))).toBe(
    "The step got slower: 2.00 ms before, 2.20 ms after, +10.0 % (between +8.0 % and +12.0 %).",
  );
  expect(stepSentence(comparison({ verdict: "unsure" }))).toContain("Cannot tell whether the step changed");
  expect(otherSentences(comparison({ verdict: "unsure" }, 40))[0]).toBe("About 40 more steps of each run would tell.");
  expect(otherSentences(comparison({}))).toEqual(["1 of 1 row got slower or larger by more than 5 %."]);
});

test("a change has a sign, unless it is nothing", () => {
  expect([0.042, -0.3, -0.0001, 1.5, 11, null].map(formatChange)).toEqual([
    "+4.2 %",
    "−30.0 %",
    "0.0 %",
    "+150 %",
    "x12",
    "–",
  ]);
});

test("memory gets larger, not slower", () => {
  expect(verdictOf({ ...STEP, unit: "bytes" })).toBe("larger");
});
