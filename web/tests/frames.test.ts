import { expect, test } from "vitest";
import { Frames, kindOf, shortName } from "../src/flame/frames";
import type { Column } from "../src/page_data";

/** main calls work (twice as long as rest) and rest; work calls itself. */
function someFrames(): Frames {
  const columns = new Map<Column, Uint32Array>();
  const column = (...numbers: number[]): Column => {
    const made = { offset: columns.size, length: numbers.length, num_bytes: 4, is_delta: false };
    columns.set(made, Uint32Array.from(numbers));
    return made;
  };
  const graph = {
    title: "Calls",
    rank: 0,
    texts: ["main", "rest", "work"],
    names: column(0, 1, 2, 2),
    callers: column(0, 1, 1, 3),
    own: column(10, 30, 20, 40),
    total: column(100, 30, 60, 40),
    total_ns: 100,
    num_calls: column(1, 3, 2, 4),
  };
  return new Frames(graph, { numbers: (column) => columns.get(column)! });
}

test("boxes lie below their caller, the longest first, and none is narrower than a pixel", () => {
  const frames = someFrames();
  expect(frames.boxes(frames.root, 100, 10)).toEqual([
    { frame: 4, level: 0, x: 0, width: 100 },
    { frame: 0, level: 1, x: 0, width: 100 },
    { frame: 2, level: 2, x: 0, width: 60 },
    { frame: 1, level: 2, x: 60, width: 30 },
    { frame: 3, level: 3, x: 0, width: 40 },
  ]);
  expect(frames.boxes(frames.root, 2, 10).map((box) => box.frame)).toEqual([4, 0, 2]);
  expect(frames.boxes(2, 60, 10).map((box) => box.width)).toEqual([60, 40]);
});

test("a function that calls itself counts once, in a search and in the table", () => {
  const frames = someFrames();
  expect(frames.foundBelow(frames.root, frames.matching("WORK"))).toEqual({ count: 2, totalNs: 60 });
  expect(frames.byName(frames.root).find((row) => row.name === "work")).toEqual({
    name: "work",
    own_ns: 60,
    total_ns: 60,
    num_calls: 6,
  });
});

test("the path to a frame begins with all calls", () => {
  const frames = someFrames();
  expect(frames.pathTo(3).map((frame) => frames.nameOf(frame))).toEqual(["Calls", "main", "work", "work"]);
});

test("a frame of Python is called by its function, and is yours or a library's", () => {
  expect(shortName("src/train.py(12): forward")).toBe("forward (train.py:12)");
  expect(
    [
      "src/train.py(12): f",
      "site-packages/x/y.py(1): g",
      "torch/nn/m.py(2): h",
      "aten::mm",
      "MmBackward0",
      "cudaLaunchKernel",
      "a",
    ].map(kindOf),
  ).toEqual([
    "your code",
    "Python of libraries",
    "Python of libraries",
    "operators",
    "backward",
    "CUDA calls",
    "markers and others",
  ]);
});
