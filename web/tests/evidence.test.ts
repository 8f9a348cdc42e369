import { expect, test } from "vitest";
import { evidenceName, evidenceOf, evidenceValue, savesVerb } from "../src/evidence";
import { formatShare } from "../src/format";

test("shares are in percent, with the line that they are of", () => {
  expect([evidenceName("share_of_line"), evidenceValue("share_of_line", 0.62)]).toEqual([
    "In top line",
    formatShare(0.62),
  ]);
  expect([evidenceName("min_share_of_line"), evidenceValue("min_share_of_line", 0.28)]).toEqual([
    "In top line, 95 % bound",
    formatShare(0.28),
  ]);
});

test("CPU use is in percent, by user", () => {
  expect([evidenceName("others_share"), evidenceValue("others_share", 0.92)]).toEqual([
    "CPU use, other processes",
    formatShare(0.92),
  ]);
  expect(evidenceValue("unknown_share", 0.5)).toBe(formatShare(0.5));
  expect(evidenceName("starved_ns")).toBe("Run-queue delay");
});

test("a saving is an upper bound where more workers save less", () => {
  expect(savesVerb({ evidence: { data_wait_ns: 5 } })).toBe("saves");
  expect(savesVerb({ evidence: { data_wait_ns: 5, reachable_saving_ns: 0 } })).toBe("saves up to");
  expect(evidenceOf({ cost_ns_per_step: 5, evidence: { reachable_saving_ns: 0 } })).toHaveLength(1);
});

test("counts and times have their units", () => {
  expect([evidenceName("num_items"), evidenceValue("num_items", 511.8)]).toEqual([".item() calls per step", "512"]);
  expect(evidenceName("num_calls")).toBe("Calls per step");
});

test("zeros that say nothing are left out, and the cost is not shown again", () => {
  const evidence = { num_throttled: 0, steal_share: 0, num_workers: 0, gc_ns: 5, sync_ns: 7 };
  expect(evidenceOf({ cost_ns_per_step: 5, evidence })).toEqual([
    ["num_workers", 0],
    ["sync_ns", 7],
  ]);
});
