import { expect, test } from "vitest";
import { evidenceName, evidenceValue } from "../src/evidence";
import { formatShare } from "../src/format";

test("shares are told in percent, and which line they are of in words", () => {
  expect([evidenceName("share_of_line"), evidenceValue("share_of_line", 0.62)]).toEqual([
    "Part in the first line",
    formatShare(0.62),
  ]);
  expect([evidenceName("least_share_of_line"), evidenceValue("least_share_of_line", 0.28)]).toEqual([
    "Surely in that line, at least",
    formatShare(0.28),
  ]);
});

test("parts of the processors are told in percent, and by whom they were used", () => {
  expect([evidenceName("others_share"), evidenceValue("others_share", 0.92)]).toEqual([
    "Processors used by others",
    formatShare(0.92),
  ]);
  expect(evidenceValue("share_not_known", 0.5)).toBe(formatShare(0.5));
  expect(evidenceName("starved_ns")).toBe("Ready, without a processor");
});

test("counts and times have their units", () => {
  expect([evidenceName("num_items"), evidenceValue("num_items", 511.8)]).toEqual(["Values read one by one", "512"]);
  expect(evidenceName("num_calls")).toBe("Number of calls");
});
