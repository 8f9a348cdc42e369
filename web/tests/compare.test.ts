import { expect, test } from "vitest";
import { formatInterval, labelRow, labelVerdict } from "../src/compare/labels";
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

test("a phase has the label of the time breakdown, and a large end of an interval is capped", () => {
  const labels = { sync_ns: "host-device sync", idle_ns: "idle" };
  const names = ["sync", "device_idle", "some_phase"].map((name) => labelRow({ ...STEP, kind: "phase", name }, labels));
  expect(names).toEqual(["host-device sync", "GPU idle", "some phase"]);
  expect(labelRow({ ...STEP, kind: "operator", name: "aten::mm", shapes: "[[2, 2]]", module: "net" }, {})).toBe(
    "aten::mm [[2, 2]] in net",
  );
  expect(formatInterval([-0.5, 9e9])).toBe("−50.0 % to more than 10x");
  expect(formatInterval([-0.5, 9], ">10x")).toBe("−50.0 % to >10x");
});
