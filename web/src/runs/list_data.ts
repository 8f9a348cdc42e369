// Made from the dataclasses of kinetoscope.pages.run_list by web/generate_types.py. Do not edit.

export interface ListedRun {
  key: string;
  title: string;
  address: string;
  group: number;
  state: string | null;
  is_active: boolean;
  when_ms: number | null;
  has_start_time: boolean;
  changed_ms: number | null;
  hosts: string[];
  devices: string[];
  num_ranks: number | null;
  world_size: number | null;
  num_steps: number | null;
  step_ns: number | null;
  change: number | null;
  before_key: string | null;
  before_title: string | null;
  finding: string | null;
  saving: string;
  mfu: number | null;
  peak_bytes: number | null;
  peak_is_of_cpu: boolean;
  report: string | null;
  has_report: boolean;
  num_traces: number;
  traces_bytes: number;
  notes: string[];
  why_unknown: string;
  is_queued: boolean;
}

export interface RankLine {
  state: string;
  cells: string[];
}

export interface StatusScreen {
  state: string;
  headline: string;
  sentences: string[];
  columns: string[];
  rows: RankLine[];
  rest: string;
}

export interface Figure {
  name: string;
  value: string;
}

export interface LivePhase {
  name: string;
  label: string;
  time_ns: number | null;
  share: number | null;
}

export interface StepPiece {
  step: number;
  last_step: number;
  num_steps: number;
  mean_ns: number;
  max_duration_ns: number;
  phases_ns: (number | null)[];
}

export interface LiveSteps {
  figures: Figure[];
  num_last: number;
  phases: LivePhase[];
  rank: number;
  pieces: StepPiece[];
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

export interface TopCalls {
  of: string;
  names: string[];
  times_ns: number[];
  shares: number[];
  num_calls: number[];
  basis: string;
}

export interface RunOverview {
  findings: string[];
  breakdowns: RankBreakdown[];
  devices: DeviceTimes[];
  top_calls: TopCalls | null;
}

export interface ListedFile {
  name: string;
  address: string;
  size_bytes: number;
  changed_ms: number;
  opens_in_perfetto: boolean;
}

export interface RunFiles {
  run: ListedRun;
  trend: ListedRun[];
  max_step_ns: number;
  live_status: StatusScreen | null;
  live_steps: LiveSteps | null;
  overview: RunOverview | null;
  path: string;
  is_only: boolean;
  reports: ListedFile[];
  traces: ListedFile[];
  num_left_out: number;
}

export interface ListData {
  title: string;
  folder: string;
  notes: string[];
  runs: ListedRun[];
  files: RunFiles | null;
  perfetto_url: string;
  refresh_ms: number;
}
