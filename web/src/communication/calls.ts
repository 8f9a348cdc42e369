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
  /** Sums over calls of which they are known; null if they are of none. */
  skewNs: number | null;
  transferNs: number | null;
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
    skewNs: sumOfKnown(calls.map((call) => call.skew_ns)),
    transferNs: sumOfKnown(calls.map((call) => call.transfer_ns)),
    bandwidth: rates.length ? rates[Math.floor(rates.length / 2)] : null,
  };
}

/** The part of a kind of call that was waiting for late ranks; null if it is not known. */
export function skewShare({ skewNs, transferNs }: CallGroup): number | null {
  return skewNs !== null && transferNs !== null && skewNs + transferNs > 0 ? skewNs / (skewNs + transferNs) : null;
}

/** "all_reduce, group 0", as far as it is known. */
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

function sumOfKnown(numbers: (number | null)[]): number | null {
  const known = numbers.filter((number) => number !== null);
  return known.length ? sumOf(known) : null;
}

function minOf(numbers: number[]): number {
  return numbers.reduce((one, other) => Math.min(one, other), Infinity);
}

function maxOf(numbers: number[]): number {
  return numbers.reduce((one, other) => Math.max(one, other), -Infinity);
}
