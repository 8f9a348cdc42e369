// Made from the dataclasses of kinetoscope.pages.page_data by web/generate_types.py. Do not edit.

export interface Overview {
  warnings: string[];
  all_steps: string;
  bound: string | null;
  bound_side: string | null;
  no_findings: string[];
  busy_share: number | null;
  min_busy_share: number | null;
  min_busy_device: string;
  num_devices: number;
  peak_bytes: number | null;
  peak_rank: number | null;
  peak_growth_bytes: number | null;
  profiler_share: number | null;
  costs: (number | null)[];
  savings: (number | null)[];
  fixes: string[];
  are_minor: boolean[];
  saving_basis: string;
}

/** Location of encoded numbers: see Column in page_data.py, and numbers() in payload.ts. */
export interface Column {
  offset: number;
  length: number;
  num_bytes: number;
  is_delta: boolean;
}

export interface StepBreakdowns {
  numbers: number[];
  times: Column;
  work: Column;
  host: Record<string, Column>;
  device: Record<string, Column>;
}

export interface BreakdownPart {
  part: string;
  label: string;
  time_ns: number | null;
  share: number | null;
  is_phase: boolean;
}

export interface RankBreakdown {
  rank: number | null;
  is_run: boolean;
  step_ns: number;
  host: BreakdownPart[];
  device: BreakdownPart[] | null;
  stands_out: boolean;
}

export interface DeviceTimes {
  rank: number | null;
  device: number | null;
  is_mean: boolean;
  window_ns: number;
  busy_ns: number;
  busy_share: number | null;
  communication_ns: number;
  idle_ns: number;
  parts: BreakdownPart[];
}

export interface CallGroup {
  group: string | null;
  name: string;
  bytes: number | null;
  is_at_least: boolean;
  num_ranks: number;
  num_calls: number;
  total_ns: number;
  skew_ns: number | null;
  transfer_ns: number | null;
  unknown_ns: number;
  skew_share: number | null;
  bandwidth_bytes_per_s: number | null;
  parts: BreakdownPart[];
}

export interface Communication {
  summary: string;
  total_ns: number;
  skew_ns: number;
  transfer_ns: number;
  unknown_ns: number;
  parts: BreakdownPart[];
  groups: CallGroup[];
  lengths: Column;
}

export interface DelayingRank {
  rank: number;
  num_calls: number;
  total_ns: number;
  max_ns: number;
}

export interface Waits {
  ranks: number[];
  waited: number[][];
  delaying: DelayingRank[];
}

export interface CallTotals {
  kind: string;
  num_calls: number;
  total_ns: number;
  self_ns: number;
}

export interface CallSums {
  name: string;
  kind: string | null;
  shapes: string | null;
  num_rows: number;
  num_calls: number;
  total_ns: number;
  self_ns: number;
  mean_ns: number;
  p50_ns: number | null;
  p95_ns: number | null;
  max_ns: number;
  device_ns: number | null;
  flops: number | null;
  flops_per_s: number | null;
  mfu: number | null;
  bytes: number | null;
  bytes_per_s: number | null;
  share_of_step: number | null;
}

export interface CallTable {
  of: string;
  by: string;
  rows: CallSums[];
}

export interface TopCalls {
  of: string;
  names: string[];
  times_ns: number[];
  shares: number[];
  num_calls: number[];
  basis: string;
}

export interface ComparedPart {
  part: string;
  label: string;
  before_ns: number | null;
  after_ns: number | null;
  change: number | null;
  verdict: string | null;
  is_shown: boolean;
}

export interface ComparedSide {
  label: string;
  max_total_ns: number;
  parts: ComparedPart[];
}

export interface CpuBreakdown {
  data_wait_ns: number | null;
  forward_ns: number | null;
  backward_ns: number | null;
  optimizer_ns: number | null;
  communication_wait_ns: number | null;
  sync_ns: number | null;
  gc_ns: number | null;
  python_ns: number | null;
  evaluation_ns: number | null;
  between_ns: number | null;
  unknown_ns: number | null;
  ahead_ns: number | null;
}

export interface DeviceBreakdown {
  compute_ns: number | null;
  exposed_communication_ns: number | null;
  exposed_copy_ns: number | null;
  idle_ns: number | null;
}

export interface StepBreakdown {
  host: CpuBreakdown;
  device: DeviceBreakdown | null;
}

export interface Piece {
  step: number;
  last_step: number;
  num_steps: number;
  num_recorded: number;
  mean_ns: number;
  max_duration_ns: number;
  evaluation_ns: number | null;
  checkpoint_ns: number | null;
  width: number;
  attempt: number;
}

export interface AllSteps {
  num_steps: number;
  num_recorded: number;
  mean_ns: number;
  max_duration_ns: number;
  slowest_step: number;
  slowest_rank: number;
  slowest_phase: string | null;
  changed_at: number | null;
  change: number | null;
  recorded_ns: number | null;
  unrecorded_ns: number | null;
  recorded_change: number | null;
  is_abnormal: boolean;
  pieces: Piece[];
}

export interface SlowStepRow {
  step: number;
  ranks: number[];
  rank: number;
  duration_ns: number;
  excess_ns: number;
  phase: string;
  line: string | null;
  starved_ns: number | null;
  is_machines: boolean;
  every: number | null;
  num_kept: number;
}

export interface Contention {
  own_percent: number | null;
  others_percent: number | null;
  steal_percent: number | null;
  slowdown: number | null;
}

export interface LeastDisturbedSteps {
  num_steps: number;
  num_known: number;
  delay_share: number;
  usual_delay_share: number;
  step_ns: number;
  parts: Record<string, number>;
}

export interface RunFacts {
  flops_per_step: number | null;
  flops_per_s: number | null;
  mfu: number | null;
  mfu_coverage: number | null;
  tensor_core_share: number | null;
  tensor_core_coverage: number | null;
  name: string | null;
  title: string | null;
  state: string | null;
  world_size: number | null;
  ranks: number[];
  hosts: string[];
  num_steps: number;
  step_ns: number | null;
  bound_by: string;
  parts: StepBreakdown | null;
  samples_per_s: number | null;
  tokens_per_s: number | null;
  all_steps: AllSteps | null;
  slow_steps: SlowStepRow[];
  missing: string[];
  notes: string[];
  hints: string[];
  contention: Contention | null;
  least_disturbed_steps: LeastDisturbedSteps | null;
}

export interface RankRow {
  rank: number | null;
  device: number | null;
  world_size: number | null;
  host: string | null;
  device_name: string | null;
  clock_bound_ns: number | null;
  num_steps: number;
  window_ns: number | null;
  busy_ns: number | null;
  compute_ns: number | null;
  communication_ns: number | null;
  communication_is_at_least: boolean | null;
  copy_ns: number | null;
  exposed_communication_ns: number | null;
  exposed_copy_ns: number | null;
  idle_ns: number | null;
  idle_host_wait_ns: number | null;
  idle_kernel_wait_ns: number | null;
  idle_other_ns: number | null;
  step_ns: number | null;
  parts: StepBreakdown | null;
}

export interface StepRow {
  rank: number | null;
  step: number;
  begin_ns: number;
  duration_ns: number;
  between_ns: number | null;
  evaluation_ns: number | null;
  data_wait_ns: number | null;
  forward_ns: number | null;
  backward_ns: number | null;
  optimizer_ns: number | null;
  sync_ns: number | null;
  gc_ns: number | null;
  python_ns: number | null;
  communication_wait_ns: number | null;
  unknown_ns: number | null;
  device_busy_ns: number | null;
  device_compute_ns: number | null;
  device_communication_ns: number | null;
  device_exposed_communication_ns: number | null;
  device_idle_ns: number | null;
  num_launches: number | null;
  num_kernels: number | null;
  peak_memory_bytes: number | null;
  evaluation_inside_ns: number | null;
  device_end_after_ns: number | null;
  flops: number | null;
  flops_per_s: number | null;
  mfu: number | null;
  mfu_coverage: number | null;
  running_ns: number | null;
  blocked_ns: number | null;
  starved_ns: number | null;
}

export interface CollectiveRow {
  group: string | null;
  sequence: number | null;
  step: number | null;
  name: string;
  bytes: number | null;
  num_ranks: number;
  ranks: number[];
  starts_ns: number[];
  ends_ns: number[];
  skew_ns: number | null;
  transfer_ns: number | null;
  waits_ns: number[] | null;
  late_rank: number | null;
  bandwidth_bytes_per_s: number | null;
}

export interface StragglerRow {
  rank: number;
  cost_ns_per_step: number;
  steps: number[];
  cause: string;
  period: number | null;
  evidence: Record<string, number>;
}

export interface OperatorRow {
  name: string;
  shapes: string | null;
  num_calls: number;
  total_ns: number;
  self_ns: number;
  mean_ns: number;
  p50_ns: number;
  p95_ns: number;
  max_ns: number;
  name_p50_ns: number;
  name_p95_ns: number;
  device_ns: number | null;
  flops: number | null;
  flops_per_s: number | null;
  mfu: number | null;
}

export interface KernelRow {
  name: string;
  kind: string;
  num_calls: number;
  total_ns: number;
  self_ns: number;
  mean_ns: number;
  p50_ns: number;
  p95_ns: number;
  max_ns: number;
  flops: number | null;
  flops_per_s: number | null;
  mfu: number | null;
  bytes: number | null;
  uses_tensor_cores: boolean | null;
}

export interface MemoryHolder {
  operator: string | null;
  line: string | null;
  category: string;
  steps: number[];
  bytes_per_step: number;
}

export interface MemoryOwner {
  name: string;
  kind: string;
  location: string;
  line: string | null;
  num_steps: number;
  num_tensors: number;
  num_graphs: number;
  bytes_per_step: number | null;
  device: number | null;
}

export interface MemoryRow {
  rank: number | null;
  device: number | null;
  peak_bytes: number;
  peak_step: number | null;
  by_category: Record<string, number>;
  growth_bytes_per_step: number | null;
  holders: MemoryHolder[];
  owners: MemoryOwner[] | null;
  growth_module: string | null;
}

export interface Where {
  ranks: number[];
  steps: number[];
  spans: string[];
  lines: string[];
  modules: string[];
}

export interface Measured {
  variant: string;
  change: number;
  interval: [number, number];
  verdict: string;
  results: string | null;
}

export interface Finding {
  id: string;
  kind: string;
  title: string;
  where: Where;
  evidence: Record<string, number>;
  cost_ns_per_step: number | null;
  saving_ns_per_step: number | null;
  saving_share: number | null;
  confidence: string;
  period: number | null;
  advice: string;
  link: string;
  measured: Measured | null;
}

export interface RunReport {
  run: RunFacts;
  ranks: RankRow[];
  steps: StepRow[];
  collectives: CollectiveRow[];
  stragglers: StragglerRow[];
  operators: OperatorRow[];
  kernels: KernelRow[];
  memory: MemoryRow[];
  findings: Finding[];
}

export interface ComparisonRow {
  kind: string;
  name: string;
  shapes: string | null;
  module: string | null;
  before: number | null;
  after: number | null;
  unit: string;
  change: number | null;
  interval: [number, number] | null;
  verdict: string;
  is_worse: boolean;
}

export interface Comparison {
  before: RunFacts;
  after: RunFacts;
  threshold: number;
  rows: ComparisonRow[];
  more_steps: number | null;
  why_unsure: string;
  notes: string[];
  fixed_findings: Finding[];
  new_findings: Finding[];
}

export interface Track {
  rank: number | null;
  kind: string;
  name: string;
  process: string;
  row_begins: number[];
  num_left_out: number;
}

export interface Spans {
  begins: Column;
  durations: Column;
  names: Column;
  categories: Column;
  details: Column;
  stacks: Column;
  launches: Column;
  modules?: Column;
}

export interface Flows {
  sources: Column;
  targets: Column;
  names: Column;
}

export interface Counter {
  rank: number | null;
  name: string;
  unit: string;
  scale: number;
  times: Column;
  values: Column;
}

export interface Stacks {
  lines: Column;
  callers: Column;
}

export interface LeftOut {
  cell_ns: number;
  tracks: Column;
  cells: Column;
  counts: Column;
}

export interface Timeline {
  texts: string[];
  tracks: Track[];
  spans: Spans;
  flows: Flows;
  counters: Counter[];
  details: (Record<string, unknown>)[];
  stacks: Stacks;
  notes: string[];
  windows: number[][];
  left_out: LeftOut | null;
}

export interface Allocation {
  category: string;
  name: string;
  line: string | null;
  step: number | null;
  size_bytes: number;
  num_allocations: number;
}

export interface StepEnd {
  step: number;
  time: number;
  size_bytes: number;
}

export interface MemoryOverTime {
  rank: number | null;
  device: string;
  categories: string[];
  times: Column;
  sizes: Column[];
  totals: Column;
  peak: number;
  peak_bytes: number;
  alive_at_peak: Allocation[];
  step_ends: StepEnd[];
}

export interface FlameGraph {
  title: string;
  rank: number | null;
  thread: string | null;
  texts: string[];
  names: Column;
  callers: Column;
  self_ns: Column;
  total: Column;
  total_ns: number;
  num_calls: Column;
  firsts: Column;
}

export interface CallingLine {
  kind: string;
  name: string;
  line: string | null;
  num_calls: number;
  total_ns: number;
  self_ns: number;
  mean_ns: number;
  max_ns: number;
}

export interface Module {
  title: string;
  class_name: string | null;
  names: string[];
  level: number;
  outlier: string;
  time_ns: number | null;
  share: number | null;
  forward_ns: number | null;
  backward_ns: number | null;
  recompute_ns: number | null;
  communication_ns: number | null;
  num_calls: number | null;
  flops: number | null;
  allocated_bytes: number | null;
  saved_bytes: number | null;
}

export interface ModuleCallSums {
  texts: string[];
  modules: Column;
  kinds: Column;
  names: Column;
  num_calls: Column;
  total_ns: Column;
  self_ns: Column;
  max_ns: Column;
  device_ns: Column;
}

export interface Modules {
  side: string;
  step_ns: number | null;
  rows: Module[];
  total: Module;
  calls: ModuleCallSums;
}

export interface PageData {
  version: string;
  title: string;
  origin_ns: string;
  notes: string[];
  profiler_ns_per_step: number | null;
  profiler_ns_around: number | null;
  overview: Overview;
  explanations: Record<string, string>;
  steps: StepBreakdowns | null;
  mean_steps: StepBreakdowns | null;
  part_labels: Record<string, string>;
  breakdowns: RankBreakdown[];
  devices: DeviceTimes[];
  communication: Communication | null;
  waits: Waits | null;
  straggler_sentences: string[];
  call_totals: CallTotals[];
  call_tables: CallTable[];
  top_calls: TopCalls | null;
  tensor_core_sentence: string | null;
  comparison_summary: string[];
  compared_sides: ComparedSide[];
  report: RunReport | null;
  comparison: Comparison | null;
  timeline: Timeline | null;
  memory: MemoryOverTime[];
  flame_graphs: FlameGraph[];
  calling_lines: CallingLine[];
  modules?: Modules;
}
