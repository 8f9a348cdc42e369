/** Links from findings and steps to the views that show them. */
import { linkTo } from "./link";
import { findRow } from "./modules/tree";
import type { CollectiveRow, Finding, FlameGraph, PageData, StepRow } from "./page_data";

export interface ViewLink {
  href: string;
  title: string;
}

const MARGIN = 0.03;
const CALL_MARGIN = 0.5;

/** The column that determines the worst step of a finding. */
const WORST_COLUMN: Record<string, keyof StepRow> = {
  input_bound: "data_wait_ns",
  synchronisation: "sync_ns",
  garbage_collection: "gc_ns",
  python_overhead: "python_ns",
  exposed_communication: "device_exposed_communication_ns",
  idle_gaps: "device_idle_ns",
  host_bound: "device_idle_ns",
  memory_limit: "peak_memory_bytes",
  blocked: "blocked_ns",
  processor_contention: "starved_ns",
  hot_line: "running_ns",
};

/** The view with details on a kind of finding. */
const VIEW_OF_KIND: Record<string, string> = {
  straggler: "ranks",
  exposed_communication: "communication",
  memory_growth: "memory",
  memory_limit: "memory",
  small_kernels: "kernels",
  float32_matmul: "kernels",
  float64: "kernels",
  exposed_copy: "kernels",
  host_bound: "operators",
  python_overhead: "flame",
  blocked: "flame",
  hot_line: "flame",
};

/** Findings on sampled lines, which are frames such as `train.py(41): loss` in timeline and flame graph. */
const SAMPLED_KINDS = ["blocked", "hot_line"];
const SAMPLED_GRAPH = "Python lines, sampled";

/**
 * Links for a finding, which has the index `at` in the report: its worst step in the timeline, and the view with
 * details.
 */
export function findViewLinks(finding: Finding, page: PageData, offered: Map<string, string>, at?: number): ViewLink[] {
  const row = worstStep(finding, page);
  const frame = SAMPLED_KINDS.includes(finding.kind) ? finding.where.lines[0]?.replace(/:(\d+)$/, "($1)") : undefined;
  const inTimeline = row && linkToStep(row, page, finding.where.spans[0] ?? frame, at);
  const view = VIEW_OF_KIND[finding.kind] ?? "";
  const sampled = page.flame_graphs.find((graph) => graph.title === SAMPLED_GRAPH);
  const graph = frame && sampled && { graph: nameGraph(sampled), q: frame };
  const title = offered.get(view);
  return [
    ...(inTimeline ? [inTimeline] : []),
    ...(title ? [{ href: linkTo({ view, ...graph }), title: `More under ${title}` }] : []),
  ];
}

/** A link to a module in the view of modules; null if the page does not have it. */
export function linkToModule(module: string, page: PageData): string | null {
  return findRow(page.modules, module) === null ? null : linkTo({ view: "modules", module });
}

/** The title of a flame graph with its thread and rank. */
export function nameGraph({ title, thread, rank }: Pick<FlameGraph, "title" | "thread" | "rank">): string {
  return `${title}${thread === null ? "" : `, ${thread}`}, ${rank === null ? "all ranks" : `rank ${rank}`}`;
}

/** A link to a step in the timeline; null if the timeline does not have it. */
export function linkToStep(row: StepRow, page: PageData, q?: string, finding?: number): ViewLink | null {
  if (!timelineHas(row, page)) return null;
  const margin = MARGIN * row.duration_ns;
  const range = {
    from: String(Math.max(0, Math.floor(row.begin_ns - margin))),
    to: String(Math.ceil(row.begin_ns + row.duration_ns + margin)),
    rank: row.rank === null ? undefined : String(row.rank),
  };
  const rank = row.rank === null ? "" : ` of rank ${row.rank}`;
  return {
    href: linkTo({ view: "timeline", ...range, q, finding: finding?.toString() }),
    title: `Show step ${row.step}${rank} in the timeline`,
  };
}

function timelineHas(row: StepRow, page: PageData): boolean {
  return page.timeline?.tracks.some((track) => track.rank === row.rank) ?? false;
}

/**
 * The worst step of a finding among the steps that it names, or all, on a rank with more than steps in the
 * timeline.
 */
function worstStep(finding: Finding, page: PageData): StepRow | null {
  const tracks = page.timeline?.tracks ?? [];
  const inTimeline = new Set(tracks.filter((track) => track.kind !== "steps").map((track) => track.rank));
  const { ranks, steps } = finding.where;
  const column = WORST_COLUMN[finding.kind] ?? "duration_ns";
  const rows = (page.report?.steps ?? []).filter(
    (row) =>
      inTimeline.has(row.rank) &&
      (!ranks.length || ranks.includes(row.rank ?? -1)) &&
      (!steps.length || steps.includes(row.step)),
  );
  return rows.reduce<StepRow | null>(
    (worst, row) => (worst && Number(worst[column] ?? 0) >= Number(row[column] ?? 0) ? worst : row),
    null,
  );
}

/** Link parameters of a collective call: its late rank, and the time from its first start to its last end. */
export function buildCallLink(call: CollectiveRow, lengthNs: number): Record<string, string> {
  const begin = call.starts_ns.reduce((one, other) => Math.min(one, other));
  const margin = CALL_MARGIN * lengthNs;
  return {
    rank: String(call.late_rank ?? call.ranks[0]),
    from: String(Math.max(0, Math.floor(begin - margin))),
    to: String(Math.ceil(begin + lengthNs + margin)),
  };
}
