/** What a step's time is made of, in parts that add up. */
import type { DEVICE_COLOURS, PHASE_COLOURS } from "./colours";
import type { StepRow } from "./page_data";

export type Phase = keyof typeof PHASE_COLOURS;
export type DeviceUse = keyof typeof DEVICE_COLOURS | "idle";
export type Parts = Record<Phase, number>;
export type DeviceParts = Record<DeviceUse, number>;

/** The names of the parts, in the order in which they are stacked. */
export const PHASE_TITLES: Record<Phase, string> = {
  data: "Waiting for data",
  forward: "Forward",
  backward: "Backward",
  optimizer: "Optimizer",
  sync: "Waiting for the device",
  communication: "Waiting for communication",
  other: "Python and other",
  evaluation: "Evaluation",
  between: "Between steps",
};

export const DEVICE_TITLES: Record<DeviceUse, string> = {
  compute: "Computing",
  communication: "Only communicating",
  copy: "Only copying",
  idle: "Idle",
};

/** A step of a rank, from the end of the one before it to the begin of the next one's fetch of data. */
export interface RankStep {
  row: StepRow;
  parts: Parts;
  device: DeviceParts | null;
}

const found = new WeakMap<StepRow[], RankStep[]>();

/** All steps, those of a rank in the order of time. Several views ask for them; they are worked out once. */
export function rankSteps(rows: StepRow[]): RankStep[] {
  const steps = found.get(rows) ?? workedOut(rows);
  found.set(rows, steps);
  return steps;
}

function workedOut(rows: StepRow[]): RankStep[] {
  return byRank(rows).flatMap(([, own]) =>
    own.map((row, at) => ({ row, parts: partsOf(row, own[at - 1]), device: deviceParts(row) })),
  );
}

/** Rows of each rank, in the order of ranks, then of time. */
export function byRank(rows: StepRow[]): [number | null, StepRow[]][] {
  const ranks = new Map<number | null, StepRow[]>();
  for (const row of rows) {
    const own = ranks.get(row.rank);
    if (own) own.push(row);
    else ranks.set(row.rank, [row]);
  }
  const sorted = [...ranks].sort(([one], [other]) => (one ?? -1) - (other ?? -1));
  return sorted.map(([rank, own]) => [rank, own.sort((one, other) => one.begin_ns - other.begin_ns)]);
}

/** The parts of one step. Waits and Python within a phase are not counted in it, so that all parts add up; what a
 * batch took before the step began is in `data`, and an evaluation within the step is with the one after it. */
export function partsOf(row: StepRow, before?: StepRow): Parts {
  const wait = row.data_wait_ns ?? 0;
  const phases = { forward: row.forward_ns ?? 0, optimizer: row.optimizer_ns ?? 0, backward: row.backward_ns ?? 0 };
  const others = { sync: row.sync_ns ?? 0, communication: row.communication_wait_ns ?? 0, other: row.python_ns ?? 0 };
  const evaluated = row.evaluation_inside_ns ?? 0;
  const waitInside = Math.min(wait - waitBefore(row, wait, before), row.duration_ns);
  const named = sum(Object.values({ ...phases, ...others, evaluated }));
  let twice = waitInside + named - row.duration_ns;
  for (const phase of ["forward", "optimizer", "backward"] as const) {
    const less = Math.min(phases[phase], Math.max(0, twice));
    phases[phase] -= less;
    twice -= less;
  }
  const unnamed = Math.max(0, -twice);
  return {
    ...{ data: wait, ...phases, ...others, other: others.other + unnamed },
    ...{ evaluation: evaluated + (row.evaluation_ns ?? 0), between: row.between_ns ?? 0 },
  };
}

/** How much of a step's wait for data was before its begin: what is left of the gap after the step before it. */
function waitBefore(row: StepRow, wait: number, before?: StepRow): number {
  if (!before || before.between_ns === null) {
    const phases = [row.forward_ns, row.backward_ns, row.optimizer_ns, row.evaluation_inside_ns];
    const inside = row.duration_ns - sum(phases.map((phase) => phase ?? 0));
    return Math.max(0, wait - Math.max(0, inside));
  }
  const end = before.begin_ns + before.duration_ns + before.between_ns + (before.evaluation_ns ?? 0);
  return Math.max(0, Math.min(wait, row.begin_ns - end));
}

function deviceParts(row: StepRow): DeviceParts | null {
  if (row.device_busy_ns === null) return null;
  const compute = row.device_compute_ns ?? 0;
  const communication = row.device_exposed_communication_ns ?? 0;
  const copy = Math.max(0, row.device_busy_ns - compute - communication);
  return { compute, communication, copy, idle: row.device_idle_ns ?? 0 };
}

export function meanParts<Names extends string>(all: Record<Names, number>[]): Record<Names, number> | null {
  if (!all.length) return null;
  const names = Object.keys(all[0]) as Names[];
  const means = names.map((name) => [name, sum(all.map((parts) => parts[name])) / all.length]);
  return Object.fromEntries(means) as Record<Names, number>;
}

export function sumOf(parts: Record<string, number>): number {
  return sum(Object.values(parts));
}

/** How long a step takes on average, with what comes before the next one. */
export function meanStep(rows: StepRow[]): number | null {
  const lengths = byRank(rows).flatMap(([, own]) =>
    own.slice(1).flatMap((row, at) => (row.step === own[at].step + 1 ? [row.begin_ns - own[at].begin_ns] : [])),
  );
  const known = lengths.length ? lengths : rows.map((row) => row.duration_ns);
  return known.length ? sum(known) / known.length : null;
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
