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

test("counts and times have their units", () => {
  expect([evidenceName("num_items"), evidenceValue("num_items", 511.8)]).toEqual(["Values read one by one", "512"]);
  expect(evidenceName("num_calls")).toBe("Number of calls");
});
