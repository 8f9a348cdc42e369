import { expect, test } from "vitest";
import type { ListedRun } from "../src/runs/list_data";
import {
  FILTERS,
  changeClass,
  formatRunChange,
  orderForComparison,
  formatFinding,
  formatMoment,
  describePeakMemory,
  formatPeakMemory,
  formatRunMfu,
  formatNames,
  formatRankCount,
  buildFilterText,
  formatStepTime,
} from "../src/runs/labels";

/** A run with unknown values only. */
const UNKNOWN: ListedRun = {
  ...{
    key: "k",
    group: 0,
    title: "digits",
    address: "/",
    state: null,
    is_active: false,
    when_ms: null,
    has_start_time: false,
    changed_ms: null,
  },
  ...{ hosts: [], devices: [], num_ranks: null, world_size: null, num_steps: null, step_ns: null, change: null },
  ...{ before_key: null, before_title: null, finding: null, saving: "", mfu: null, peak_bytes: null },
  ...{ peak_is_of_cpu: false, report: null, has_report: false, num_traces: 0, traces_bytes: 0, notes: [] },
  ...{ why_unknown: "", is_queued: false },
};

test("unknown values are blank, and 0 is not", () => {
  const shown = [
    formatRankCount,
    formatStepTime,
    formatRunChange,
    changeClass,
    formatFinding,
    formatRunMfu,
    formatPeakMemory,
  ];
  expect(shown.map((say) => say(UNKNOWN))).toEqual(shown.map(() => ""));
  const none = { ...UNKNOWN, num_ranks: 0, step_ns: 0, change: 0, mfu: 0, peak_bytes: 0 };
  expect(
    [formatRankCount, formatStepTime, formatRunChange, formatRunMfu, formatPeakMemory].map((say) => say(none)),
  ).toEqual(["0", "0 ns", "0.0 %", "0.0 %", "0 B"]);
});

test("a moment that is none, or that no calendar has, is blank", () => {
  expect([null, Number.NaN, Number.POSITIVE_INFINITY, 9e15].map((ms) => formatMoment(ms))).toEqual(["", "", "", ""]);
  expect(formatMoment(1_790_000_000_000)).toMatch(/2026/);
  expect(formatMoment(0, true)).toMatch(/19(69|70)/);
});

test("missing ranks are shown, and more ranks than the world size are not", () => {
  const of = (num_ranks: number | null, world_size: number | null) =>
    formatRankCount({ ...UNKNOWN, num_ranks, world_size });
  expect([of(1, 1), of(3, 8), of(4096, 131_072), of(9, 8), of(null, 8), of(2, null)]).toEqual([
    "1",
    "3 of 8",
    "4,096 of 131,072",
    "9",
    "",
    "2",
  ]);
});

test("few hosts and devices are named, without who made them, and many are counted", () => {
  expect(formatNames(["NVIDIA H100 80GB", "AMD MI300X"], "device")).toBe("H100 80GB, MI300X");
  expect(formatNames(["a", "b", "c"], "host")).toBe("3 hosts");
  expect(formatNames([], "host")).toBe("");
  expect(formatNames(["Intel(R) <b>Arc</b>"], "device")).toBe("<b>Arc</b>");
});

test("a change has a colour from 5 % on, in both directions", () => {
  const classes = [-1, -0.05, -0.049, 0, 0.049, 0.05, 1e9].map((change) => changeClass({ ...UNKNOWN, change }));
  expect(classes).toEqual(["faster", "faster", "", "", "", "slower", "slower"]);
});

test("where no finding is known it says why, and where there is none, that", () => {
  expect(formatFinding({ ...UNKNOWN, why_unknown: "too large" })).toBe("too large");
  expect(formatFinding({ ...UNKNOWN, finding: "" })).toBe("none");
  expect(formatFinding({ ...UNKNOWN, finding: "Steps wait" })).toBe("Steps wait");
});

test("sizes of any order have three digits that count", () => {
  const sizes = [1, 1023, 2 ** 40, 2 ** 60].map((peak_bytes) => formatPeakMemory({ ...UNKNOWN, peak_bytes }));
  expect(sizes).toEqual(["1 B", "1023 B", "1.00 TiB", "1048576 TiB"]);
  expect(describePeakMemory({ ...UNKNOWN, peak_is_of_cpu: true })).toContain("host");
});

test("the filter looks in what is known, and choices take runs of unknown state in no state", () => {
  expect(buildFilterText({ ...UNKNOWN, hosts: ["node1"], finding: "Steps wait" })).toBe("digits node1 Steps wait");
  const taken = Object.entries(FILTERS).filter(([, fits]) => fits(UNKNOWN));
  expect(taken.map(([name]) => name)).toEqual(["all runs", "without traces"]);
});

test("the earlier of two runs comes first; one without a start counts as earlier", () => {
  const [late, early] = [
    { ...UNKNOWN, key: "b", when_ms: 2 },
    { ...UNKNOWN, key: "a", when_ms: 1 },
  ];
  expect(orderForComparison([late, early]).address).toBe("/generated/?before=a&after=b");
  expect(orderForComparison([late, { ...UNKNOWN, key: "u" }]).before.key).toBe("u");
});
