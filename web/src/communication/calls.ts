/** Labels of collective calls. */
import { formatBytes } from "../format";
import type { CallGroup, Communication } from "../page_data";
import type { Numbers, Payload } from "../payload";

/** "all_reduce, group 0"; without an unknown group. */
export function callTitle({ group, name }: { group: string | null; name: string }): string {
  return group === null ? name : `${name}, group ${group}`;
}

export function sizeTitle({ bytes, is_at_least }: CallGroup): string {
  return bytes !== null && is_at_least ? `at least ${formatBytes(bytes)}` : formatBytes(bytes);
}

/** Time from the first rank's start to the last one's end of each call, in the order of the report's rows. */
export function lengthsOf(communication: Communication, payload: Payload): Numbers {
  return payload.numbers(communication.lengths);
}
