/** Spans of a finding: those that it names, on its ranks and in its steps. */
import type { Finding, StepRow } from "../page_data";
import type { TimelineData } from "./data";
import type { Outlined } from "./stage";

const MAX_SPANS = 2000;

/** Spans that show kinds of findings without named spans. */
const SHOWN_BY: Record<string, RegExp> = {
  input_bound: /dataloader|event\/(wait_)?data|next_?batch|_next_data/i,
  synchronisation: /synchronize|^cu(da)?memcpy|aten::(item|_local_scalar_dense)|memcpy dtoh/i,
  garbage_collection: /^gc\b|garbage/i,
  exposed_communication: /nccl|gloo|all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all/i,
  exposed_copy: /memcpy/i,
  recompilation: /compil|dynamo|inductor/i,
  memory_limit: /^step /,
};

/** The outlined spans, the longest ones if there are too many. `steps` are of all ranks, in the time of the data. */
export function outlinedBy(finding: Finding, data: TimelineData, steps: StepRow[]): Outlined {
  const { ranks, steps: numbers } = finding.where;
  const names = namesOf(finding, data);
  const named = numbers.length ? steps.filter(({ step }) => numbers.includes(step)) : [];
  const spans: number[] = [];
  for (const row of data.rows) {
    const { rank } = data.tracks[row.track];
    if (ranks.length && rank !== null && !ranks.includes(rank)) continue;
    const own = named.filter((step) => step.rank === rank || rank === null || step.rank === null);
    for (let span = row.first; span < row.end; span++) {
      if (!names[data.columns.names[span]]) continue;
      const begin = data.begins[span];
      const end = begin + data.durations[span];
      const isIn = ({ begin_ns: from, duration_ns: length }: StepRow) => begin < from + length && end > from;
      if (!numbers.length || own.some(isIn)) spans.push(span);
    }
  }
  spans.sort((one, other) => data.durations[other] - data.durations[one]);
  return { title: finding.title, spans: spans.slice(0, MAX_SPANS) };
}

/** For each text: is it the name of an outlined span; of the steps, if the finding names nothing else. */
function namesOf({ kind, where }: Finding, data: TimelineData): Uint8Array {
  const frames = where.lines.map((line) => line.replace(/:(\d+)$/, "($1): "));
  const isNamed = (text: string) => where.spans.includes(text) || frames.some((frame) => isFrame(text, frame));
  const named = Uint8Array.from(data.texts, (text) => Number(isNamed(text)));
  if (named.includes(1)) return named;
  const shown = SHOWN_BY[kind];
  const found = Uint8Array.from(data.texts, (text) => Number(shown?.test(text.slice(0, 1000)) ?? false));
  return found.includes(1) ? found : Uint8Array.from(data.texts, (text) => Number(/^step \d+$/.test(text)));
}

/** Is a text the frame of a source line; its path may be longer than that of the line. */
function isFrame(text: string, frame: string): boolean {
  return text.startsWith(frame) || (text.length < 1000 && text.includes(`/${frame}`));
}
