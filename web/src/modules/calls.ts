/** Operators and kernels within a module. */
import type { ModuleCallSums } from "../page_data";
import type { Payload } from "../payload";

export type CallsOf = "operators" | "kernels";

/** All calls of one name within a module. Times are nanoseconds. */
export interface CallsWithin {
  name: string;
  kind: string;
  num_calls: number;
  total_ns: number;
  self_ns: number;
  mean_ns: number;
  max_ns: number;
  device_ns: number;
}

const OPERATOR = "operator";

/** The operators or kernels within the rows from `first` to before `end`, by name, the largest self time first. */
export function callsWithin(
  payload: Payload,
  calls: ModuleCallSums,
  of: CallsOf,
  first: number,
  end: number,
): CallsWithin[] {
  const [modules, kinds, names, numCalls, totals, selves, longest, devices] = [
    ...[calls.modules, calls.kinds, calls.names, calls.num_calls],
    ...[calls.total_ns, calls.self_ns, calls.max_ns, calls.device_ns],
  ].map((column) => payload.numbers(column));
  const found = new Map<string, CallsWithin>();
  for (let at = 0; at < modules.length; at++) {
    const kind = calls.texts[kinds[at]];
    if (modules[at] < first || modules[at] >= end || (kind === OPERATOR) !== (of === "operators")) continue;
    const key = `${kind} ${names[at]}`;
    let row = found.get(key);
    if (!row) {
      row = {
        name: calls.texts[names[at]],
        kind,
        num_calls: 0,
        total_ns: 0,
        self_ns: 0,
        mean_ns: 0,
        max_ns: 0,
        device_ns: 0,
      };
      found.set(key, row);
    }
    row.num_calls += numCalls[at];
    row.total_ns += totals[at];
    row.self_ns += selves[at];
    row.device_ns += devices[at];
    row.mean_ns = row.total_ns / row.num_calls;
    row.max_ns = Math.max(row.max_ns, longest[at]);
  }
  return [...found.values()].sort((one, other) => other.self_ns - one.self_ns);
}
