import { expect, test } from "vitest";
import { labelVerdict } from "../src/compare/labels";
import { formatChange } from "../src/format";
import type { ComparisonRow } from "../src/page_data";

const STEP = {
  ...{ kind: "step", name: "step", shapes: null, module: null, before: 2e6, after: 2.2e6, unit: "ns" },
  ...{ change: 0.1, interval: [0.08, 0.12], verdict: "slower" },
} as ComparisonRow;

test("a change has a sign, unless it is nothing", () => {
  expect([0.042, -0.3, -0.0001, 1.5, 11, 9e9, null].map(formatChange)).toEqual([
    "+4.2 %",
    "−30.0 %",
    "0.0 %",
    "+150 %",
    "x12",
    "x1,000+",
    "–",
  ]);
});

test("memory gets larger, not slower", () => {
  expect(labelVerdict({ ...STEP, unit: "bytes" })).toBe("larger");
});
