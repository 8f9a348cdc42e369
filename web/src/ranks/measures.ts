/** Measures of the heat map of ranks and steps. */
import { formatBytes, formatDuration } from "../format";
import type { RunReport } from "../page_data";
import type { RankStep } from "../step_breakdowns";

export interface Measure {
  name: string;
  title: string;
  value: (step: RankStep) => number | null;
  format: (value: number | null) => string;
  /** Start the colours at 0, as for waits and idle time. */
  isFromZero: boolean;
}

export const MEASURES: Measure[] = [
  time("step", "Step time", (step) => step.timeNs),
  time("data", "Waiting for data", (step) => step.row.data_wait_ns, true),
  time("host", "CPU work", (step) => step.workNs),
  time("sync", "Host-device sync", (step) => step.row.sync_ns, true),
  time("waiting", "Waiting for communication", (step) => step.row.communication_wait_ns, true),
  time("compute", "GPU compute", (step) => step.row.device_compute_ns),
  time("communication", "GPU exposed communication", (step) => step.row.device_exposed_communication_ns, true),
  time("idle", "GPU idle", (step) => step.row.device_idle_ns, true),
  {
    name: "memory",
    title: "Peak memory",
    value: (step) => step.row.peak_memory_bytes,
    format: formatBytes,
    isFromZero: false,
  },
];

function time(name: string, title: string, value: Measure["value"], isFromZero = false): Measure {
  return { name, title, value, format: formatDuration, isFromZero };
}

/** The measures that are not zero in all steps. */
export function knownMeasures(steps: RankStep[]): Measure[] {
  return MEASURES.filter((measure) => steps.some((step) => measure.value(step)));
}

/** The measure that explains the worst straggler; the step time without one. */
export function firstMeasure(report: RunReport): string {
  const cause = report.stragglers[0]?.cause;
  return { data: "data", host: "host", device: "compute" }[cause ?? ""] ?? "step";
}
