/** Labels in the list of runs. Unknown values are blank. */
import { counted, formatBytes, formatChange, formatCount, formatDuration, formatShare } from "../format";
import type { ListedRun } from "./list_data";

/** A change of this size gets a colour: the default threshold of `kinetoscope diff`. */
const CHANGE_THRESHOLD = 0.05;

const SHORT_FORMAT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const FULL_FORMAT = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });

/** A time in the reader's time zone, short or with the zone. */
export function formatMoment(unixMs: number | null, isInFull = false): string {
  const moment = new Date(unixMs ?? Number.NaN);
  return Number.isNaN(moment.valueOf()) ? "" : (isInFull ? FULL_FORMAT : SHORT_FORMAT).format(moment);
}

export function formatKnown<Value>(value: Value | null, show: (value: Value) => string, otherwise = ""): string {
  return value === null ? otherwise : show(value);
}

export function formatRankCount({ num_ranks, world_size }: ListedRun): string {
  const of =
    world_size !== null && num_ranks !== null && world_size > num_ranks ? ` of ${formatCount(world_size)}` : "";
  return formatKnown(num_ranks, (number) => `${formatCount(number)}${of}`);
}

const MAX_NAMED = 2;
/** The vendor does not distinguish devices. */
const VENDOR_PREFIX = /^(NVIDIA|AMD|Intel)(\(R\))? /;

/** Names of hosts or devices; their number if there are many. */
export function formatNames(names: string[], noun: string): string {
  if (names.length > MAX_NAMED) return counted(names.length, noun);
  return names.map((name) => name.replace(VENDOR_PREFIX, "")).join(", ");
}

export function formatStepTime(run: ListedRun): string {
  return formatKnown(run.step_ns, formatDuration);
}

export function formatRunChange(run: ListedRun): string {
  return formatKnown(run.change, formatChange);
}

export function changeClass({ change }: ListedRun): string {
  if (change === null || (change < CHANGE_THRESHOLD && change > -CHANGE_THRESHOLD)) return "";
  return change > 0 ? "slower" : "faster";
}

/** The top finding; the reason if it is unknown. */
export function formatFinding(run: ListedRun): string {
  return run.finding === null ? run.why_unknown : run.finding || "none";
}

export function formatRunMfu(run: ListedRun): string {
  return formatKnown(run.mfu, formatShare);
}

export function formatPeakMemory(run: ListedRun): string {
  return formatKnown(run.peak_bytes, formatBytes);
}

export function describePeakMemory(run: ListedRun): string {
  return run.peak_is_of_cpu ? "at most, of tensors on the host" : "at most, of tensors on one device";
}

const STATE_LABELS: Record<string, string> = {
  recording: "running",
  hanging: "hung",
  silent: "unresponsive",
};

/** A state as a label, where the value in JSON differs from it. */
export function formatState(state: string): string {
  return STATE_LABELS[state] ?? state;
}

/** Text for the filter. */
export function buildFilterText(run: ListedRun): string {
  const state = run.state && formatState(run.state);
  return [run.title, state, ...run.hosts, ...run.devices, run.finding, ...run.notes].filter(Boolean).join(" ");
}

/** Filters of the list by label. */
export const FILTERS: Record<string, (run: ListedRun) => boolean> = {
  "all runs": () => true,
  running: (run) => run.state === "recording",
  "hung or unresponsive": (run) => run.state === "hanging" || run.state === "silent",
  "killed or failed": (run) => run.state === "killed" || run.state === "failed",
  finished: (run) => run.state === "finished",
  "without traces": (run) => run.num_traces === 0,
};

/** The address of the comparison of two runs, the earlier one first. */
export function orderForComparison(runs: ListedRun[]): { address: string; before: ListedRun; after: ListedRun } {
  const [before, after] = runs.toSorted((one, other) => Number(one.when_ms) - Number(other.when_ms));
  return { address: buildComparisonAddress(before.key, after.key), before, after };
}

export function buildComparisonAddress(beforeKey: string, afterKey: string): string {
  return `/generated/?before=${beforeKey}&after=${afterKey}`;
}
