/** Labels and units of evidence: the unit follows from the ending of a name. */
import { counted, formatBytes, formatCount, formatDuration, formatShare } from "./format";
import type { Finding } from "./page_data";

const LABELS: Record<string, string> = {
  around_window_ns: "Profiler time outside steps",
  batch_size: "Batch size",
  before_graphs_ns: "Idle before CUDA graph kernels",
  blocked_ns: "Blocked",
  bubble_ns: "Pipeline bubble",
  busy_share: "CPU use, all processes",
  bytes_per_step: "Growth per step",
  compile_ns: "Compile time",
  cool_down_ns: "Cool-down",
  copy_ns: "Copy time",
  data_longer_ns: "Extra data wait",
  data_wait_ns: "Data wait",
  device_longer_ns: "Extra GPU time",
  epoch_start_share: "In first batch of an epoch",
  every_n_steps: "Period",
  exposed_communication_ns: "Exposed communication",
  float64_ns: "float64 compute",
  gc_ns: "GC time",
  hidden_gaps_ns: "Late kernels, unknown cause",
  host_longer_ns: "Extra CPU time",
  host_ns: "CPU time",
  idle_other_ns: "Unexplained GPU idle",
  kernels_ns: "Kernel time",
  late_ns: "Delay",
  late_share_of_line: "Line sampled late",
  launch_ns: "Launch time",
  least_share_of_line: "In top line, 95 % bound",
  longest_input: "Longest input",
  median_batch_ns: "Median batch build time",
  most_excess_ns: "Largest excess",
  most_ns: "Longest",
  num_calls: "Calls per step",
  num_collections: "Collections per step",
  num_compilations: "Compilations per step",
  num_cores: "CPU cores",
  num_free_cores: "Idle cores",
  num_hangs: "Hangs",
  num_items: ".item() calls per step",
  num_late_ranks: "Stragglers",
  num_late_ranks_left_out: "Stragglers left out",
  num_late_steps: "Delayed steps",
  num_launches: "Launches per step",
  num_microbatches: "Microbatches",
  num_of_machine: "Due to CPU contention",
  num_ranks: "Ranks on this host",
  num_ranks_left_hanging: "Ranks still hung",
  num_samples: "Samples",
  num_slow_steps: "Outlier steps kept",
  num_small_kernels: "Small kernels per step",
  num_small_operators: "Small operators per step",
  num_stages: "Pipeline stages",
  num_threads: "torch threads per rank",
  num_throttled: "CPU throttling events",
  num_with_line: "With a known line",
  num_workers: "Workers",
  others_share: "CPU use, other processes",
  own_share: "CPU use, this job",
  pageable_ns: "Copies from pageable memory",
  peak_bytes: "Peak memory",
  period: "Period",
  prefetch_factor: "Prefetch factor",
  process_percent: "CPU use, this process",
  processor_longer_ns: "Extra run-queue delay",
  processor_percent: "CPU use, all cores",
  profiler_ns: "Profiler time",
  python_ns: "Python overhead",
  reachable_saving_ns: "Saving within reach",
  running_ns: "CPU time of the loop",
  saving_at_most_ns: "Saving, upper bound",
  self_ns: "Self time",
  sending_ns: "Time to send a batch",
  share_not_known: "Unknown wait for ranks",
  share_of_device: "GPU memory used",
  share_of_line: "In top line",
  share_of_operators: "Operators of the step",
  share_of_reason: "In top line, this cause",
  share_of_schedule: "Bubble of the schedule",
  shortest_input: "Shortest input",
  starved_ns: "Run-queue delay",
  steal_share: "CPU steal time",
  steps_until_full: "Steps until out of memory",
  sync_ns: "Blocking sync",
  tensors_per_step: "Tensors per step",
  throttled_share: "CPU throttling",
  total_ns: "Total time",
  waiting_share_of_batches: "Batch build time spent waiting",
  waits_for_late_ranks_ns: "Wait for stragglers",
  warm_up_ns: "Warm-up",
  without_work_ns: "GPU without work",
};

/** Evidence that means something at zero: no workers, and no core that is idle. */
const AT_ZERO = new Set(["num_workers", "num_free_cores"]);

/** Return the evidence to show: without the cost again, and without zeros that say nothing. */
export function evidenceOf(finding: Pick<Finding, "cost_ns_per_step" | "evidence">): [string, number][] {
  const cost = finding.cost_ns_per_step ?? NaN;
  return Object.entries(finding.evidence).filter(
    ([name, value]) =>
      !(name.endsWith("_ns") && Math.abs(value - cost) <= 1) &&
      !(name.endsWith("_longer_ns") && value <= 0) &&
      (value !== 0 || AT_ZERO.has(name)),
  );
}

/** Return the label of a number. */
export function evidenceName(name: string): string {
  const plain = name.replace(/^num_/, "").replace(/_(ns|bytes|percent)$/, "");
  const words = plain.replaceAll("_", " ");
  return LABELS[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/** Return the number with its unit. */
export function evidenceValue(name: string, value: number): string {
  if (name.endsWith("_ns")) return formatDuration(value);
  if (name.endsWith("_bytes") || name.startsWith("bytes_")) return formatBytes(value);
  if (name === "period" || name === "every_n_steps") return counted(value, "step");
  if (name.endsWith("_percent")) return formatShare(value / 100);
  return /(^|_)share(_|$)/.test(name) ? formatShare(value) : formatCount(value >= 100 ? Math.round(value) : value);
}
