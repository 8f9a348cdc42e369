/** Labels and units of evidence; the suffix of a name determines the unit. */
import { counted, formatBytes, formatCount, formatDuration, formatShare } from "./format";
import type { Finding } from "./page_data";

/** Labels of names that do not read as one. */
const LABELS: Record<string, string> = {
  batch_transfer_ns: "Time to send a batch",
  batch_wait_share: "Batch build time spent waiting",
  bubble_ns: "Pipeline bubble",
  busy_share: "CPU use, all processes",
  bytes_per_step: "Growth per step",
  compile_ns: "Compile time",
  cool_down_ns: "Cool-down",
  copy_ns: "Copy time",
  cpu_ns: "CPU time",
  cpu_percent: "CPU use, all cores",
  data_longer_ns: "Extra data wait",
  device_longer_ns: "Extra GPU time",
  device_wait_ns: "GPU without work",
  epoch_start_share: "In first batch of an epoch",
  every_n_steps: "Period",
  float64_ns: "float64 compute",
  gc_ns: "GC time",
  graph_gaps_ns: "Idle before CUDA graph kernels",
  hidden_gaps_ns: "Late kernels, unknown cause",
  host_longer_ns: "Extra CPU time",
  idle_other_ns: "Unexplained GPU idle",
  kernels_ns: "Kernel time",
  late_ns: "Delay",
  late_share_of_line: "Line sampled late",
  launch_ns: "Launch time",
  max_duration_ns: "Longest",
  max_excess_ns: "Largest excess",
  max_saving_ns: "Saving, upper bound",
  median_batch_ns: "Median batch build time",
  min_step_ns: "Shortest step on these cores",
  min_share_of_line: "In top line, 95 % bound",
  num_calls: "Calls per step",
  num_collections: "Collections per step",
  num_compilations: "Compilations per step",
  num_contended_steps: "Due to CPU contention",
  num_cores: "CPU cores",
  num_excluded_stragglers: "Stragglers left out",
  num_free_cores: "Idle cores",
  num_hung_ranks: "Ranks still hung",
  num_items: ".item() calls per step",
  num_late_steps: "Delayed steps",
  num_launches: "Launches per step",
  num_ranks: "Ranks on this host",
  num_slow_steps: "Outlier steps kept",
  num_small_kernels: "Small kernels per step",
  num_small_operators: "Small operators per step",
  num_stages: "Pipeline stages",
  num_threads: "torch threads per rank",
  num_throttled: "CPU throttling events",
  num_with_line: "With a known line",
  others_share: "CPU use, other processes",
  own_share: "CPU use, this job",
  pageable_ns: "Copies from pageable memory",
  peak_bytes: "Peak memory",
  process_percent: "CPU use, this process",
  processor_longer_ns: "Extra run-queue delay",
  profiler_ns: "Profiler time",
  python_ns: "Python overhead",
  reachable_saving_ns: "Saving by more workers",
  running_ns: "CPU time of the loop",
  self_ns: "Self time",
  share_of_device: "GPU memory used",
  share_of_line: "In top line",
  share_of_operators: "Operators of the step",
  share_of_reason: "In top line, this cause",
  share_of_schedule: "Bubble of the schedule",
  starved_ns: "Run-queue delay",
  steal_share: "CPU steal time",
  steps_until_full: "Steps until out of memory",
  straggler_wait_ns: "Wait for stragglers",
  sync_ns: "Blocking sync",
  throttled_share: "CPU throttling",
  total_ns: "Total time",
  unknown_share: "Unknown wait for ranks",
  warm_up_ns: "Warm-up",
  window_overhead_ns: "Profiler time outside steps",
};

const REACHABLE = "reachable_saving_ns";

/** Evidence that is shown at zero, too. */
const SHOWN_AT_ZERO = new Set(["num_workers", "num_free_cores", REACHABLE]);

/** The evidence to show: without the cost, which is shown before, and without zeros. */
export function evidenceOf(finding: Pick<Finding, "cost_ns_per_step" | "evidence">): [string, number][] {
  const cost = finding.cost_ns_per_step ?? NaN;
  return Object.entries(finding.evidence).filter(
    ([name, value]) =>
      !(name.endsWith("_ns") && Math.abs(value - cost) <= 1) &&
      !(name.endsWith("_longer_ns") && value <= 0) &&
      (value !== 0 || SHOWN_AT_ZERO.has(name)),
  );
}

/** "saves", or "saves up to" where the change that the finding advises may save less. */
export function savesVerb(finding: Pick<Finding, "evidence">): string {
  return REACHABLE in finding.evidence ? "saves up to" : "saves";
}

/** The label of a number. */
export function evidenceName(name: string): string {
  const plain = name.replace(/^num_/, "").replace(/_(ns|bytes|percent)$/, "");
  const words = plain.replaceAll("_", " ");
  return LABELS[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/** The number with its unit. */
export function evidenceValue(name: string, value: number): string {
  if (name.endsWith("_ns")) return formatDuration(value);
  if (name.endsWith("_bytes") || name.startsWith("bytes_")) return formatBytes(value);
  if (name === "period" || name === "every_n_steps") return counted(value, "step");
  if (name.endsWith("_percent")) return formatShare(value / 100);
  return /(^|_)share(_|$)/.test(name) ? formatShare(value) : formatCount(value >= 100 ? Math.round(value) : value);
}
