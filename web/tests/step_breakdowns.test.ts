import { expect, test } from "vitest";
import type { BreakdownPart } from "../src/page_data";
import { shownParts, toStackParts } from "../src/step_breakdowns";

const part = (part: string, label: string, time_ns: number | null, is_phase = false): BreakdownPart => {
  return { part, label, time_ns, share: time_ns === null ? null : 0.5, is_phase };
};

test("an unknown phase is shown, and one without time is not", () => {
  const parts = [part("forward_ns", "forward", 0, true), part("backward_ns", "backward", null, true)];
  const [shown] = shownParts([toStackParts([...parts, part("unknown_ns", "unknown", 5)])]);

  expect(shown.map(({ name, value }) => [name, value])).toEqual([
    ["Backward", null],
    ["Unknown", 5],
  ]);
});

test("all stacks of one picture have the same parts", () => {
  const forward = [part("forward_ns", "forward", 3, true), part("gc_ns", "GC pauses", 0)];
  const collected = [part("forward_ns", "forward", 0, true), part("gc_ns", "GC pauses", 2)];
  const [first, second] = shownParts([toStackParts(forward), toStackParts(collected)]);

  expect(first.map(({ name }) => name)).toEqual(["Forward", "GC pauses"]);
  expect(second.map(({ value }) => value)).toEqual([0, 2]);
});

test("a lead that was lost is shown, by the label that the data has for it", () => {
  const [shown] = shownParts([toStackParts([part("ahead_ns", "CPU fell behind", -4)])]);

  expect(shown).toMatchObject([{ name: "CPU fell behind", value: -4, share: 0.5 }]);
});
