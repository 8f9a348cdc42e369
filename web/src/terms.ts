/** Explanations of the terms on the page. */
const TERMS: Record<string, string> = {
  "waiting for data": "The loop waits for its next batch: a DataLoader, or spans that are named data.",
  forward: "The forward pass, without the waits in it.",
  backward: "The backward pass, without the waits in it.",
  optimizer: "The optimizer's step, without the waits in it.",
  "waiting for communication": "The loop calls collectives, or waits for them to end.",
  "host-device sync": "The loop waits until the GPU has finished its work: .item(), copies, synchronize().",
  "gc pauses": "The garbage collector pauses the loop.",
  "python overhead": "Python outside of operators, waits and phases.",
  evaluation: "Evaluations between steps, and within them.",
  "between steps": "Other time between the end of a step and the start of the next one.",
  unknown: "Time that no recorded event explains.",
  "cpu run-ahead": "The CPU finishes this much before the GPU, which limits the step time.",
  "cpu fell behind": "The CPU took this much longer than the step, since the GPU still had earlier work.",
  compute: "Compute kernels run on the GPU.",
  "exposed communication": "The GPU communicates without overlapping compute.",
  "exposed copy": "The GPU copies without overlapping work.",
  idle: "Nothing runs on the GPU.",
  "idle: waiting for launches": "The GPU was idle until the CPU launched the next kernel.",
  "idle between kernels": "Short pauses between kernels that were already launched.",
  "idle, unexplained": "The GPU was idle, and no launch explains it.",
  "waiting for the last rank":
    "Skew: from the start of the first rank to the start of the last, which the others wait for.",
  transfer: "From the start of the last rank to the end of the last: the time of the call itself.",
  "cost per step": "Time per step that the fault costs.",
  "gpu busy": "Share of the recorded windows in which the GPU runs something, from its first event to its last.",
  "throughput per rank": "Samples or tokens that one rank's loop counts, per step time.",
  "peak memory": "Most memory allocated at one time on a GPU, or on the CPU.",
  mfu: "Model FLOPs utilisation: matmul FLOP/s of the model as a share of the GPU's peak.",
  "profiler overhead": "Time that the recording adds to a step, and to the steps around a window.",
};

/** The explanation of a term; null for other texts. */
export function meaningOf(term: string): string | null {
  return TERMS[term.toLowerCase()] ?? null;
}
