/** Calls of collectives, summed by group, name and size. */
import { formatBytes } from "../format";
import type { CollectiveRow } from "../page_data";

export interface CallGroup {
  group: string | null;
  name: string;
  size: string;
  /** What sizes are sorted by; null where they are not known. */
  sizeBytes: number | null;
  calls: CollectiveRow[];
  totalNs: number;
  /** Sums over calls of which both are known. */
  skewNs: number;
  transferNs: number;
  bandwidth: number | null;
}

/** More sizes than that are put together, from a power of two to the next. */
const MOST_SIZES = 6;

/** From the first rank's begin to the last one's end. */
export function lengthNs(call: CollectiveRow): number {
  return maxOf(call.ends_ns) - minOf(call.starts_ns);
}

/** Those that took most time first. */
export function callGroups(calls: CollectiveRow[]): CallGroup[] {
  const byName = groupedBy(calls, (call) => JSON.stringify([call.group, call.name]));
  const groups = byName.flatMap((calls) => {
    const isMany = new Set(calls.map((call) => call.bytes)).size > MOST_SIZES;
    const bucket = (call: CollectiveRow) =>
      isMany && call.bytes ? 2 ** Math.floor(Math.log2(call.bytes)) : call.bytes;
    return groupedBy(calls, (call) => String(bucket(call))).map((own) => summed(own, bucket(own[0]), isMany));
  });
  return groups.sort((one, other) => other.totalNs - one.totalNs);
}

function summed(calls: CollectiveRow[], bytes: number | null, isBucket: boolean): CallGroup {
  const [{ group, name }] = calls;
  const rates = calls.flatMap((call) => call.bandwidth_bytes_per_s ?? []).sort((one, other) => one - other);
  return {
    ...{ group, name, calls },
    size: bytes === null ? "–" : isBucket && bytes > 0 ? `${formatBytes(bytes)} and more` : formatBytes(bytes),
    sizeBytes: bytes,
    totalNs: sumOf(calls.map(lengthNs)),
    skewNs: sumOf(calls.map((call) => call.skew_ns ?? 0)),
    transferNs: sumOf(calls.map((call) => call.transfer_ns ?? 0)),
    bandwidth: rates.length ? rates[Math.floor(rates.length / 2)] : null,
  };
}

/** "all_reduce of group 0", as far as it is known. */
export function callTitle({ group, name }: { group: string | null; name: string }): string {
  return group === null ? name : `${name}, group ${group}`;
}

function groupedBy<Value>(values: Value[], keyOf: (value: Value) => string): Value[][] {
  const groups = new Map<string, Value[]>();
  for (const value of values) {
    const group = groups.get(keyOf(value));
    if (group) group.push(value);
    else groups.set(keyOf(value), [value]);
  }
  return [...groups.values()];
}

export function sumOf(numbers: number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

function minOf(numbers: number[]): number {
  return numbers.reduce((one, other) => Math.min(one, other), Infinity);
}

function maxOf(numbers: number[]): number {
  return numbers.reduce((one, other) => Math.max(one, other), -Infinity);
}
