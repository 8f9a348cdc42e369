/** Operators and kernels within a module. */
import type { CallSums, CallTotals, ModuleCallSums } from "../page_data";
import type { Payload } from "../payload";

const OPERATOR = "operator";

/** Facts of calls that are unknown within modules. */
const UNKNOWN = {
  shapes: null,
  num_rows: 1,
  p50_ns: null,
  p95_ns: null,
  flops: null,
  flops_per_s: null,
  mfu: null,
  bytes: null,
  bytes_per_s: null,
  share_of_step: null,
};

/** The operators or kernels within the rows from `first` to before `end`, by name, the largest self time first. */
export function callsWithin(
  payload: Payload,
  calls: ModuleCallSums,
  of: "operators" | "kernels",
  first: number,
  end: number,
): CallSums[] {
  const [modules, kinds, names, numCalls, totals, selves, longest, devices] = [
    ...[calls.modules, calls.kinds, calls.names, calls.num_calls],
    ...[calls.total_ns, calls.self_ns, calls.max_ns, calls.device_ns],
  ].map((column) => payload.numbers(column));
  const found = new Map<string, CallSums>();
  for (let at = 0; at < modules.length; at++) {
    const kind = calls.texts[kinds[at]];
    if (modules[at] < first || modules[at] >= end || (kind === OPERATOR) !== (of === "operators")) continue;
    const key = `${kind} ${names[at]}`;
    let row = found.get(key);
    if (!row) {
      const zero = { num_calls: 0, total_ns: 0, self_ns: 0, mean_ns: 0, max_ns: 0, device_ns: null };
      row = { ...UNKNOWN, ...zero, name: calls.texts[names[at]], kind: kind === OPERATOR ? null : kind };
      found.set(key, row);
    }
    row.num_calls += numCalls[at];
    row.total_ns += totals[at];
    row.self_ns += selves[at];
    row.device_ns = (row.device_ns ?? 0) + devices[at] || null; // 0 is also that of runs without a device
    row.mean_ns = row.total_ns / row.num_calls;
    row.max_ns = Math.max(row.max_ns, longest[at]);
  }
  return [...found.values()].sort((one, other) => other.self_ns - one.self_ns);
}

/** The totals of all rows, then those of each kind, the longest first. */
export function totalsOf(rows: CallSums[]): CallTotals[] {
  const [all, ...kinds] = ["", ...new Set(rows.flatMap(({ kind }) => kind ?? []))].map((kind) => {
    const total = { kind, num_calls: 0, total_ns: 0, self_ns: 0 };
    for (const row of rows) {
      if (kind && row.kind !== kind) continue;
      total.num_calls += row.num_calls;
      total.total_ns += row.total_ns;
      total.self_ns += row.self_ns;
    }
    return total;
  });
  return [all, ...kinds.sort((one, other) => other.total_ns - one.total_ns)];
}
