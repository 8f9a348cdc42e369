/** Who waited for whom, from the calls of collectives. */
import type { CollectiveRow } from "../page_data";

export interface Waits {
  ranks: number[];
  /** By rank that waited, then by rank that it waited for, in nanoseconds, in the order of `ranks`. */
  waited: number[][];
}

/** A rank for which the others waited. */
export interface LateRank {
  rank: number;
  numCalls: number;
  /** Summed over all ranks that waited. */
  totalNs: number;
  longestNs: number;
}

export function waitsOf(calls: CollectiveRow[]): Waits {
  const ranks = [...new Set(calls.flatMap((call) => call.ranks))].sort((one, other) => one - other);
  const places = new Map(ranks.map((rank, at) => [rank, at]));
  const waited = ranks.map(() => ranks.map(() => 0));
  for (const call of lateCalls(calls)) {
    const late = places.get(call.late_rank)!;
    call.ranks.forEach((rank, at) => (waited[places.get(rank)!][late] += call.waits_ns[at]));
  }
  return { ranks, waited };
}

/** Those for which most time was waited first. */
export function lateRanks(calls: CollectiveRow[]): LateRank[] {
  const found = new Map<number, LateRank>();
  for (const call of lateCalls(calls)) {
    const late = found.get(call.late_rank) ?? { rank: call.late_rank, numCalls: 0, totalNs: 0, longestNs: 0 };
    const waits = call.waits_ns.reduce((sum, wait) => sum + wait, 0);
    late.numCalls += waits > 0 ? 1 : 0;
    late.totalNs += waits;
    late.longestNs = Math.max(late.longestNs, ...call.waits_ns);
    found.set(call.late_rank, late);
  }
  return [...found.values()].filter((late) => late.totalNs > 0).sort((one, other) => other.totalNs - one.totalNs);
}

type LateCall = CollectiveRow & { late_rank: number; waits_ns: number[] };

function lateCalls(calls: CollectiveRow[]): LateCall[] {
  return calls.filter((call): call is LateCall => call.late_rank !== null && call.waits_ns !== null);
}
