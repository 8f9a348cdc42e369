/** Spans that belong to a module. */
import type { TimelineData } from "./data";

/** For each span: does it belong to one of the rows of modules from `first` to before `end`. */
export function spansOfModules({ columns }: TimelineData, first: number, end: number): Uint8Array {
  const { modules } = columns;
  const shown = new Uint8Array(columns.names.length);
  if (!modules) return shown;
  for (let span = 0; span < shown.length; span++) shown[span] = Number(modules[span] > first && modules[span] <= end);
  return shown;
}
