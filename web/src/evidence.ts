/** The evidence of findings in words: a name says by its ending what its number is. */
import { counted, formatBytes, formatCount, formatDuration, formatShare } from "./format";
import type { Finding } from "./page_data";

const WORDS: Record<string, string> = {
  bytes_per_step: "Growth a step",
  steps_until_full: "Steps until memory is full",
  share_of_device: "Part of the device's memory",
  every_n_steps: "Comes again after",
  period: "Late again after",
  data_longer_ns: "Waits longer for data than others",
  device_longer_ns: "Computes longer on its device than others",
  host_longer_ns: "Takes longer on its host than others",
  processor_longer_ns: "Has no processor for longer than others",
  waits_for_late_ranks_ns: "Waits for late ranks",
  without_work_ns: "Device without work",
  processor_percent: "Processor busy",
  process_percent: "Processor used by this process",
  gc_ns: "Garbage collection",
  sync_ns: "Waits for the device",
  python_ns: "Python between operators",
  host_ns: "Time on the host",
  saving_at_most_ns: "Saves at most",
  hidden_gaps_ns: "Begins late beside communication, for no known reason",
  late_ns: "Late by",
  num_items: "Values read one by one",
  share_of_line: "Part in the first line",
  least_share_of_line: "Surely in that line, at least",
  share_of_reason: "Part in the first line, for this reason",
  share_not_known: "Part whose waits for ranks are not known",
  late_share_of_line: "Samples of that line that were read late",
  starved_ns: "Ready, without a processor",
  blocked_ns: "Waits, and does not run",
  running_ns: "Runs on a processor",
  own_share: "Processors used by this run",
  others_share: "Processors used by others",
  busy_share: "Processors busy",
  steal_share: "Processors taken by other virtual machines",
  throttled_share: "Stopped by the container's limit",
  num_throttled: "Stops by the container's limit",
  num_cores: "Processors it may use",
  num_threads: "Threads on which torch computes",
  epoch_start_share: "At the first batch of an epoch",
  num_slow_steps: "Slow steps kept",
  num_hangs: "Hangs",
  num_ranks_left_hanging: "Ranks that hung until the end",
  most_ns: "The longest, at least",
  num_of_machine: "Of these, for want of a processor",
  most_excess_ns: "The slowest took longer by",
  num_with_line: "Of these, with a line",
  waiting_share_of_batches: "Part of making a batch that waits",
};

/** The evidence to show: not what is the cost again, nor in what a late rank was no later than others. */
export function evidenceOf(finding: Pick<Finding, "cost_ns_per_step" | "evidence">): [string, number][] {
  const cost = finding.cost_ns_per_step ?? NaN;
  return Object.entries(finding.evidence).filter(
    ([name, value]) =>
      !(name.endsWith("_ns") && Math.abs(value - cost) <= 1) && !(name.endsWith("_longer_ns") && value <= 0),
  );
}

/** What a number is of, in words. */
export function evidenceName(name: string): string {
  const plain = name.replace(/^num_/, "number_of_").replace(/_(ns|bytes|percent)$/, "");
  const words = plain.replaceAll("_", " ");
  return WORDS[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/** The number, with its unit. */
export function evidenceValue(name: string, value: number): string {
  if (name.endsWith("_ns")) return formatDuration(value);
  if (name.endsWith("_bytes") || name.startsWith("bytes_")) return formatBytes(value);
  if (name === "period" || name === "every_n_steps") return counted(value, "step");
  if (name.endsWith("_percent")) return formatShare(value / 100);
  return /(^|_)share(_|$)/.test(name) ? formatShare(value) : formatCount(value >= 100 ? Math.round(value) : value);
}
