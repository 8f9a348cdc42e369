/** What the words of the page mean, for who asks on the spot. */
const TERMS: Record<string, string> = {
  "waiting for data": "The loop waits for its next batch: a DataLoader, or spans that are named data.",
  forward: "The forward pass, without the waits in it.",
  backward: "The backward pass, without the waits in it.",
  optimizer: "The optimizer's step, without the waits in it.",
  "waiting for communication": "The loop is in calls of collectives, or waits for them to end.",
  "host-device sync": "The loop waits until its device has done what it was given: .item(), copies, synchronising.",
  "gc pauses": "Python's garbage collector stops the loop.",
  "python overhead": "Python outside of operators, waits and phases.",
  evaluation: "Evaluations between steps, and within them.",
  "between steps": "What else lies between the end of a step and the begin of the next one.",
  unknown: "Nothing that was recorded says what this time is. It is not 0.",
  "cpu run-ahead": "By so much the host is done sooner than its device, whose pace the run has.",
  "cpu fell behind": "By so much the host took longer than the run, since its device still had work from before.",
  compute: "Kernels that are no communication run on the device.",
  "exposed communication": "The device communicates, and computes nothing meanwhile.",
  "exposed copy": "The device copies, and does nothing else meanwhile.",
  idle: "Nothing runs on the device.",
  "idle: waiting for launches": "The device had nothing to do, since the host had not launched its next kernel yet.",
  "idle between kernels": "Short pauses between kernels that were already launched.",
  "idle, unexplained": "The device did nothing, and no launch tells why.",
  skew: "From the first rank's begin to the last one's begin: the others wait for it.",
  transfer: "From the last rank's begin to the last one's end: what the call itself takes.",
  confidence: "How sure it is that this is a fault, and worth its saving: high, medium or low. Low ones may be chance.",
  "cost per step": "What the fault takes from a step now.",
  "gpu busy": "The part of the recorded windows in which a device did something, from its first event to its last.",
  "throughput per rank": "What the loop of one rank counts, at the time that a step takes.",
  "peak memory": "The most that was allocated at one time on a device, or on the host.",
  "on tensor cores": "Kernels that use a device's units for products of matrices, as far as their names tell.",
  "not on tensor cores": "Kernels that compute without these units, as far as their names tell.",
  "names do not tell": "Kernels whose names do not say which units they use.",
  mfu: "Model FLOPs utilisation: the operations of the model's products a second, as a share of what the device can do at most.",
  clocks: "Within what the clocks of the ranks are known to agree.",
  "profiler's own cost": "The time that recording itself took from a step.",
};

/** What a word means; null where that needs no words. */
export function meaningOf(term: string): string | null {
  return TERMS[term.toLowerCase()] ?? null;
}
