/** Time breakdowns of steps, windows and calls as coloured parts. */
import { cssColour, DEVICE_COLOURS, PHASE_COLOURS } from "./colours";
import type { Column, CpuBreakdown, BreakdownPart, StepBreakdowns, StepRow } from "./page_data";
import type { StackPart } from "./parts/stack";
import type { Numbers, Payload } from "./payload";

/** Colours of the parts, in the order of the stack; their labels come with the data. */
const HOST_COLOURS: Record<keyof CpuBreakdown, string> = {
  data_wait_ns: cssColour(PHASE_COLOURS.data),
  forward_ns: cssColour(PHASE_COLOURS.forward),
  backward_ns: cssColour(PHASE_COLOURS.backward),
  optimizer_ns: cssColour(PHASE_COLOURS.optimizer),
  communication_wait_ns: cssColour(PHASE_COLOURS.communication),
  sync_ns: cssColour(PHASE_COLOURS.sync),
  gc_ns: "var(--collecting)",
  python_ns: cssColour(PHASE_COLOURS.other),
  evaluation_ns: cssColour(PHASE_COLOURS.evaluation),
  between_ns: cssColour(PHASE_COLOURS.between),
  unknown_ns: "var(--unknown)",
  ahead_ns: "var(--idle)",
};

const DEVICE_COLOURS_OF: Record<string, string> = {
  compute_ns: cssColour(DEVICE_COLOURS.compute),
  exposed_communication_ns: cssColour(DEVICE_COLOURS.communication),
  exposed_copy_ns: cssColour(DEVICE_COLOURS.copy),
  idle_ns: "var(--idle)",
  idle_host_wait_ns: cssColour(7),
  idle_kernel_wait_ns: cssColour(8),
  idle_other_ns: "var(--idle)",
};

const CALL_COLOURS: Record<string, string> = {
  skew_ns: cssColour(2),
  transfer_ns: cssColour(6),
  unknown_ns: "var(--unknown)",
};

/** The parts of a whole with their colours. */
export function toStackParts(parts: BreakdownPart[]): StackPart[] {
  return parts.map(({ part, label, time_ns, share, is_phase }) => ({
    name: capitalize(label),
    value: time_ns,
    share,
    colour: { ...CALL_COLOURS, ...DEVICE_COLOURS_OF, ...HOST_COLOURS }[part] ?? "var(--unknown)",
    isPhase: is_phase,
  }));
}

function capitalize(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/** The parts with time in one of several stacks, and the unknown phases. */
export function shownParts(stacks: StackPart[][]): StackPart[][] {
  const isShown = (at: number) =>
    stacks.some((stack) => (stack[at].value ?? 0) !== 0) ||
    (stacks.some((stack) => stack[at].isPhase) && stacks.every((stack) => stack[at].value === null));
  const indices = (stacks[0] ?? []).map((_, at) => at).filter(isShown);
  return stacks.map((stack) => indices.map((at) => stack[at]));
}

/** A step with its times and breakdowns. */
export interface StepParts {
  step: number;
  timeNs: number | null;
  workNs: number | null;
  host: StackPart[];
  device: StackPart[] | null;
}

/** A step of a rank. */
export interface RankStep extends StepParts {
  row: StepRow;
}

const found = new WeakMap<StepBreakdowns, RankStep[]>();

/** All steps, by rank and time. */
export function rankSteps(payload: Payload): RankStep[] {
  const { steps, report } = payload.page;
  if (!steps || !report) return [];
  const known = found.get(steps) ?? readSteps(payload, steps, report.steps);
  found.set(steps, known);
  return known;
}

function readSteps(payload: Payload, breakdowns: StepBreakdowns, rows: StepRow[]): RankStep[] {
  const read = reader(payload, breakdowns);
  const all = rows.map((row, at) => ({ row, ...read(at, row.step) }));
  return all.sort(
    (one, other) => (one.row.rank ?? -1) - (other.row.rank ?? -1) || one.row.begin_ns - other.row.begin_ns,
  );
}

/** The mean over all ranks of each step. */
export function meanSteps(payload: Payload): StepParts[] {
  const breakdowns = payload.page.mean_steps;
  if (!breakdowns) return [];
  const read = reader(payload, breakdowns);
  return breakdowns.numbers.map((step, at) => read(at, step));
}

function reader(payload: Payload, breakdowns: StepBreakdowns): (at: number, step: number) => StepParts {
  const [times, work] = [payload.numbers(breakdowns.times), payload.numbers(breakdowns.work)];
  const [host, device] = [breakdowns.host, breakdowns.device].map((columns) => columnsOf(payload, columns));
  return (index, step) => ({
    step,
    timeNs: known(times[index]),
    workNs: known(work[index]),
    host: toStackParts(readParts(host, index)),
    device: device.length ? toStackParts(readParts(device, index)) : null,
  });
}

type PartColumn = Pick<BreakdownPart, "part" | "label" | "is_phase"> & { numbers: Numbers };

function columnsOf(payload: Payload, columns: Record<string, Column>): PartColumn[] {
  const { part_labels: labels, breakdowns } = payload.page;
  const phases = new Set(
    breakdowns.flatMap(({ host }) => host.filter((part) => part.is_phase).map(({ part }) => part)),
  );
  return Object.entries(columns).map(([part, column]) => {
    return { part, label: labels[part] ?? part, is_phase: phases.has(part), numbers: payload.numbers(column) };
  });
}

/** Parts of a single step, without shares: those of the GPU are not parts of the CPU's time. */
function readParts(columns: PartColumn[], index: number): BreakdownPart[] {
  return columns.map(({ numbers, ...part }) => ({ ...part, time_ns: known(numbers[index]), share: null }));
}

/** Times are stored plus 1, and 0 if unknown. */
function known(written: number): number | null {
  return written ? written - 1 : null;
}
