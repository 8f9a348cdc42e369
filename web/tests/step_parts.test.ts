import { expect, test } from "vitest";
import { hostParts, shownParts } from "../src/step_parts";

const NOTHING = { data_wait_ns: 0, forward_ns: 0, backward_ns: 0, optimizer_ns: 0 };

test("a phase that is not known is told, and one that takes no time is not", () => {
  const [shown] = shownParts([hostParts({ ...NOTHING, backward_ns: null, unknown_ns: 5 })]);

  expect(shown.map(({ name, value }) => [name, value])).toEqual([
    ["Backward", null],
    ["Not known", 5],
  ]);
});

test("all stacks of one picture have the same parts", () => {
  const [first, second] = shownParts([hostParts({ ...NOTHING, forward_ns: 3 }), hostParts({ ...NOTHING, gc_ns: 2 })]);

  expect(first.map(({ name }) => name)).toEqual(["Forward", "Garbage collection"]);
  expect(second.map(({ value }) => value)).toEqual([0, 2]);
});
