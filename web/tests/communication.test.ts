import { expect, test } from "vitest";
import { callGroups } from "../src/communication/calls";
import type { CollectiveRow } from "../src/page_data";

function call(row: Partial<CollectiveRow>): CollectiveRow {
  return {
    ...{ group: "0", name: "all_reduce", bytes: null, starts_ns: [0, 30], ends_ns: [100, 100] },
    ...{ skew_ns: 30, transfer_ns: 70, bandwidth_bytes_per_s: null },
    ...row,
  } as CollectiveRow;
}

test("calls are summed by group, name and size, those that took most first", () => {
  const calls = [
    call({ group: "1" }),
    call({ bytes: 1024 }),
    call({ bytes: 1024 }),
    call({ name: "send", skew_ns: null }),
  ];

  const groups = callGroups(calls);

  expect(groups.map(({ group, name, size, totalNs }) => [group, name, size, totalNs])).toEqual([
    ["0", "all_reduce", "1.00 KiB", 200],
    ["1", "all_reduce", "–", 100],
    ["0", "send", "–", 100],
  ]);
  expect(groups[0]).toMatchObject({ skewNs: 60, transferNs: 140 });
});

test("many sizes are put together by powers of two", () => {
  const calls = [3, 5, 6, 7, 9, 10, 11, 12, 17].map((kib) => call({ bytes: kib * 1024 }));

  const sizes = callGroups(calls).map(({ size, calls }) => [size, calls.length]);

  expect(sizes).toEqual([
    ["8.00 KiB and more", 4],
    ["4.00 KiB and more", 3],
    ["2.00 KiB and more", 1],
    ["16.0 KiB and more", 1],
  ]);
});
