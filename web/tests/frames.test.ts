import { expect, test } from "vitest";
import { Frames, kindOf, shortName, type Order } from "../src/flame/frames";
import { sandwichOf, withoutHidden } from "../src/flame/sandwich";

/** main calls work (twice as long as rest) and, before it, rest; work calls itself. */
function someFrames(order?: Order): Frames {
  const graph = {
    title: "Calls",
    texts: ["main", "rest", "work"],
    names: [0, 1, 2, 2],
    callers: [0, 1, 1, 3],
    self_ns: [10, 30, 20, 40],
    total: [100, 30, 60, 40],
    total_ns: 100,
    num_calls: [1, 3, 2, 4],
    firsts: [0, 1, 2, 3],
  };
  return new Frames<number[]>(graph, { numbers: (column) => column }, order);
}

/** Each frame of a tree with its callers, total time and self time. */
function framesOf(frames: Frames): [string, number, number][] {
  return Array.from({ length: frames.root }, (_, frame) => [
    frames
      .pathTo(frame)
      .map((at) => frames.nameOf(at))
      .join(" > "),
    frames.total[frame],
    frames.self_ns[frame],
  ]);
}

test("in the order of time, calls lie as they first began, and what is too narrow takes its place", () => {
  const names = (order: Order, width: number) => {
    const frames = someFrames(order);
    return frames.boxes(frames.root, width, 3).map(({ frame, x }) => [frames.nameOf(frame), x]);
  };
  expect(names("Left-heavy", 100).slice(2)).toEqual([
    ["work", 0],
    ["rest", 60],
  ]);
  expect(names("In order of time", 100).slice(2)).toEqual([
    ["rest", 0],
    ["work", 30],
  ]);
  expect(names("In order of time", 2).slice(2)).toEqual([["work", 0.6]]);
});

test("a sandwich has all calls of a function, with its callers and its callees", () => {
  const { callers, callees } = sandwichOf(someFrames(), "main", "Left-heavy");
  expect([callers.total[callers.root], callers.self_ns[callers.root], framesOf(callers)]).toEqual([100, 10, []]);
  expect(framesOf(callees)).toEqual([
    ["main > work", 60, 20],
    ["main > work > work", 40, 40],
    ["main > rest", 30, 30],
  ]);
  const inTime = sandwichOf(someFrames("In order of time"), "main", "In order of time").callees;
  expect(inTime.boxes(inTime.root, 100, 2).map(({ frame }) => inTime.nameOf(frame))).toEqual(["main", "rest", "work"]);
});

test("of a function that calls itself a sandwich has the outermost calls", () => {
  const { callers, callees } = sandwichOf(someFrames(), "work", "Left-heavy");
  expect([callees.total[callees.root], framesOf(callers)]).toEqual([60, [["work > main", 60, 0]]]);
  expect(framesOf(callees)).toEqual([["work > work", 40, 40]]);
  expect(framesOf(sandwichOf(someFrames(), "missing", "Left-heavy").callees)).toEqual([]);
});

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
    self_ns: 60,
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
  ).toEqual(["your code", "library Python", "library Python", "operators", "backward", "CUDA calls", "markers, other"]);
});

test("hidden frames give their self time and callees to their callers, and nothing is counted twice", () => {
  const shown = withoutHidden(someFrames(), (name) => name === "work", "Left-heavy");
  expect(framesOf(shown)).toEqual([
    ["Calls > main", 100, 70],
    ["Calls > main > rest", 30, 30],
  ]);
  expect(shown.total[shown.root]).toBe(100);
});
