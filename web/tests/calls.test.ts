import { expect, test } from "vitest";
import { groupCalls } from "../src/views/calls";
import { withoutTypes } from "../src/views/kernels";

const row = (name: string, num_calls: number, total_ns: number) => ({
  name,
  num_calls,
  total_ns,
  self_ns: total_ns,
  mean_ns: total_ns / num_calls,
  p50_ns: 7,
  p95_ns: 9,
  max_ns: total_ns - num_calls,
});

test("the mean of a group is of all its calls, and its quantiles are not known", () => {
  const rows = [row("a", 1, 10), row("b", 2, 30), row("a", 3, 50)];
  const [a, b] = groupCalls(
    rows,
    (row) => row.name,
    (row) => row.name,
  );
  expect(a).toMatchObject({ name: "a", num_calls: 4, total_ns: 60, mean_ns: 15, p50_ns: null, max_ns: 47 });
  expect(b).toMatchObject({ name: "b", mean_ns: 15, p50_ns: 7, p95_ns: 9 });
});

test("a kernel's name without its types is what the same kernels of other types have, too", () => {
  expect(
    [
      "void at::native::fill<float, (int)4>(at::Tensor<float>, long)",
      "void at::native::(anonymous namespace)::add<double>(int)",
      "ampere_sgemm_128x64_nn",
      "<odd",
    ].map(withoutTypes),
  ).toEqual(["at::native::fill", "at::native::{anonymous}::add", "ampere_sgemm_128x64_nn", "<odd"]);
});
