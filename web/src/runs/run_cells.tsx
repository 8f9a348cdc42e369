/** Values of a run, in the list and on its page. */
import { Name } from "../parts/name";
import type { ListedRun } from "./list_data";
import { buildComparisonAddress, formatMoment } from "./labels";
import * as labels from "./labels";

export function State({ state }: { state: string | null }) {
  return state && <span class={`state ${state}`}>{labels.formatState(state)}</span>;
}

export function When({ unixMs, what }: { unixMs: number | null; what: string }) {
  const shown = formatMoment(unixMs);
  return shown && <time title={`${what} ${formatMoment(unixMs, true)}`}>{shown}</time>;
}

export function Several({ names, noun }: { names: string[]; noun: string }) {
  return (
    <span class="several" title={names.join(", ")}>
      <Name text={labels.formatNames(names, noun)} maxLength={60} />
    </span>
  );
}

export function Change({ run }: { run: ListedRun }) {
  if (run.before_key === null) return null;
  return (
    <a
      class={`change-link ${labels.changeClass(run)}`}
      href={buildComparisonAddress(run.before_key, run.key)}
      title={`compared with ${run.before_title}: open the comparison`}
    >
      {labels.formatRunChange(run)}
    </a>
  );
}

export function FirstFinding({ run }: { run: ListedRun }) {
  return (
    <span class={`first-finding ${run.finding ? "" : "quiet"}`} title={run.saving || labels.formatFinding(run)}>
      <Name text={labels.formatFinding(run)} maxLength={400} />
    </span>
  );
}
