/** What a step is made of, in words and colours: the host's ledger, and the device's. Each adds up to the step. */
import { cssColour, DEVICE_COLOURS, PHASE_COLOURS } from "./colours";
import type { DeviceParts, HostParts, StepLedgers, StepRow } from "./page_data";
import type { StackPart } from "./parts/stack";
import type { Numbers, Payload } from "./payload";

type Look = readonly [title: string, colour: string];

/** The parts in the order in which they are stacked; their words are those of the terminal (report/words.py). */
const HOST_PARTS: Record<keyof HostParts, Look> = {
  data_wait_ns: ["Waiting for data", cssColour(PHASE_COLOURS.data)],
  forward_ns: ["Forward", cssColour(PHASE_COLOURS.forward)],
  backward_ns: ["Backward", cssColour(PHASE_COLOURS.backward)],
  optimizer_ns: ["Optimizer", cssColour(PHASE_COLOURS.optimizer)],
  communication_wait_ns: ["Waiting for communication", cssColour(PHASE_COLOURS.communication)],
  sync_ns: ["Waiting for the device", cssColour(PHASE_COLOURS.sync)],
  gc_ns: ["Garbage collection", "var(--collecting)"],
  python_ns: ["Python", cssColour(PHASE_COLOURS.other)],
  evaluation_ns: ["Evaluation", cssColour(PHASE_COLOURS.evaluation)],
  between_ns: ["Between steps", cssColour(PHASE_COLOURS.between)],
  unknown_ns: ["Not known", "var(--unknown)"],
  ahead_ns: ["Ahead of the device", "var(--idle)"],
};

const DEVICE_PARTS: Record<keyof DeviceParts, Look> = {
  compute_ns: ["Computing", cssColour(DEVICE_COLOURS.compute)],
  exposed_communication_ns: ["Only communicating", cssColour(DEVICE_COLOURS.communication)],
  exposed_copy_ns: ["Only copying", cssColour(DEVICE_COLOURS.copy)],
  idle_ns: ["Idle", "var(--idle)"],
};

/** Phases that every training step has: where nothing shows one, it is told that it is not known. */
const PHASES = new Set(["data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns"]);

export function hostParts(parts: Record<string, number | null>): StackPart[] {
  return stackOf(HOST_PARTS, parts);
}

export function deviceParts(parts: Record<string, number | null>): StackPart[] {
  return stackOf(DEVICE_PARTS, parts);
}

function stackOf(looks: Record<string, Look>, parts: Record<string, number | null>): StackPart[] {
  return Object.entries(looks).map(([name, [title, colour]]) => ({
    name: title,
    value: parts[name] ?? null,
    colour,
    isPhase: PHASES.has(name),
  }));
}

/** The parts that take something in one of several stacks, and the phases that are not known. */
export function shownParts(stacks: StackPart[][]): StackPart[][] {
  const isShown = (at: number) =>
    stacks.some((stack) => (stack[at].value ?? 0) > 0) ||
    (stacks.some((stack) => stack[at].isPhase) && stacks.every((stack) => stack[at].value === null));
  const places = (stacks[0] ?? []).map((_, at) => at).filter(isShown);
  return stacks.map((stack) => places.map((at) => stack[at]));
}

/** One step: its time on the host, and what that and the device's are made of. */
export interface LedgerStep {
  step: number;
  timeNs: number;
  workNs: number;
  host: StackPart[];
  device: StackPart[] | null;
}

/** A step of a rank. */
export interface RankStep extends LedgerStep {
  row: StepRow;
}

const found = new WeakMap<StepLedgers, RankStep[]>();

/** All steps, those of a rank in the order of time. */
export function rankSteps(payload: Payload): RankStep[] {
  const { steps, report } = payload.page;
  if (!steps || !report) return [];
  const known = found.get(steps) ?? readSteps(payload, steps, report.steps);
  found.set(steps, known);
  return known;
}

function readSteps(payload: Payload, ledgers: StepLedgers, rows: StepRow[]): RankStep[] {
  const read = reader(payload, ledgers);
  const all = rows.map((row, at) => ({ row, ...read(at, row.step) }));
  return all.sort(
    (one, other) => (one.row.rank ?? -1) - (other.row.rank ?? -1) || one.row.begin_ns - other.row.begin_ns,
  );
}

/** The means over all ranks of each step. */
export function meanSteps(payload: Payload): LedgerStep[] {
  const ledgers = payload.page.mean_steps;
  if (!ledgers) return [];
  const read = reader(payload, ledgers);
  return ledgers.numbers.map((step, at) => read(at, step));
}

function reader(payload: Payload, ledgers: StepLedgers): (at: number, step: number) => LedgerStep {
  const decode = (columns: StepLedgers["host"]) =>
    Object.entries(columns).map(([name, column]) => [name, payload.numbers(column)] as const);
  const [times, work] = [payload.numbers(ledgers.times), payload.numbers(ledgers.work)];
  const [host, device] = [decode(ledgers.host), decode(ledgers.device)];
  const at = (columns: (readonly [string, Numbers])[], place: number) =>
    Object.fromEntries(columns.map(([name, numbers]) => [name, known(numbers[place])]));
  return (place, step) => ({
    step,
    timeNs: known(times[place]) ?? 0,
    workNs: known(work[place]) ?? 0,
    host: hostParts(at(host, place)),
    device: device.length ? deviceParts(at(device, place)) : null,
  });
}

/** Numbers of ledgers are written plus 1, and 0 where they are not known. */
function known(written: number): number | null {
  return written ? written - 1 : null;
}
