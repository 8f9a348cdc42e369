import type { Ref } from "preact";
import { useMemo } from "preact/hooks";
import { counted, formatDuration } from "../format";
import { Name } from "../parts/name";
import { PanelHead } from "./panel_head";
import { arrowsAt, callersOf, launchedBy, type Relation } from "./relations";
import { formatMoment } from "./ruler";
import type { Stage } from "./stage";

const MAX_CALLERS = 40;
const MAX_KERNELS = 30;

interface SpanProps {
  stage: Stage;
  span: number;
}

/** Details of a span, and links to related spans. */
export function SpanPanel({ stage, span, section }: SpanProps & { section: Ref<HTMLElement> }) {
  const { data } = stage;
  return (
    <section class="timeline-panel" aria-label="Selected span" data-span={span} ref={section} tabIndex={-1}>
      <PanelHead onClose={() => stage.select(null)}>
        <strong>
          <Name text={data.name(span)} />
        </strong>
        <button type="button" title="F" onClick={() => stage.reveal(span)}>
          Show span
        </button>
      </PanelHead>
      <div class="timeline-columns">
        <Facts stage={stage} span={span} />
        <Related stage={stage} span={span} />
        <Args stage={stage} span={span} />
        <Stack stage={stage} span={span} />
      </div>
    </section>
  );
}

function Facts({ stage, span }: SpanProps) {
  const { data } = stage;
  const track = data.track(span);
  const duration = data.durations[span];
  const module = data.moduleTitle(span);
  const begin = stage.fold.real(data.begins[span]);
  const facts: [string, string][] = [
    ["Duration", formatDuration(duration)],
    ["Self time", formatDuration(data.selfTime(span))],
    ["Start", formatMoment(begin, { from: begin, to: begin + 1e5 })],
    ["Category", data.category(span) || "–"],
    ...(module === null ? [] : ([["Module", module]] as [string, string][])),
    ["Rank", track.rank === null ? "–" : String(track.rank)],
    ["Track", [track.process, track.name].filter(Boolean).join(", ")],
  ];
  return (
    <dl class="timeline-facts">
      {facts.map(([title, value]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd>
            <Name text={value} maxLength={120} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Related({ stage, span }: SpanProps) {
  const { data } = stage;
  const related = useMemo(() => relatedTo(stage, span), [stage, span]);
  const go = (other: number) => stage.select(other, true);
  return (
    <div class="timeline-related">
      {related.map(({ title, relations, more }) => (
        <div key={title}>
          <h3>{title}</h3>
          <ul>
            {relations.map((relation) => (
              <li key={relation.span}>
                <span class="quiet">{relation.how}</span>{" "}
                <button type="button" class="as-link" onClick={() => go(relation.span)}>
                  <Name text={data.name(relation.span)} maxLength={120} />
                </button>{" "}
                <span class="quiet">{formatDuration(data.durations[relation.span])}</span>
              </li>
            ))}
          </ul>
          {more > 0 && <p class="quiet">{`and ${more} more`}</p>}
        </div>
      ))}
    </div>
  );
}

interface Group {
  title: string;
  relations: Relation[];
  more: number;
}

/** Callers, launched kernels and flows of a span. */
function relatedTo({ data }: Stage, span: number): Group[] {
  const callers = callersOf(data, span);
  const isKernel = data.columns.launches[span] > 0;
  const kernels = launchedBy(data, span).map((kernel) => ({ span: kernel, how: "Kernel" }));
  const flows = arrowsAt(data, span).filter((arrow) => arrow.name !== "launch");
  const flowing = flows.map(({ from, to, name }) => {
    return from === span ? { span: to, how: `${name} →` } : { span: from, how: `← ${name}` };
  });
  const title = kernels.length === 1 ? "Launched" : `Launched ${counted(kernels.length, "kernel")}`;
  return [
    groupOf(isKernel ? "Launched by" : "Called by", callers, MAX_CALLERS),
    groupOf(title, kernels, MAX_KERNELS),
    groupOf("Flows", flowing, MAX_KERNELS),
  ].filter((group) => group.relations.length);
}

function groupOf(title: string, relations: Relation[], maxRelations: number): Group {
  return { title, relations: relations.slice(0, maxRelations), more: Math.max(0, relations.length - maxRelations) };
}

const NOT_KEPT =
  "Not in this report, which has arguments and stacks of the longest spans of each track, and of the steps that findings name.";

function Args({ stage: { data }, span }: SpanProps) {
  const args = data.argsOf(span);
  return (
    <div class="timeline-args">
      <h3>Arguments</h3>
      {args ? (
        <table>
          <tbody>
            {Object.entries(args).map(([name, value]) => (
              <tr key={name}>
                <th scope="row">
                  <Name text={name} />
                </th>
                <td>
                  <Name text={typeof value === "string" ? value : JSON.stringify(value)} maxLength={400} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p class="quiet">{NOT_KEPT}</p>
      )}
    </div>
  );
}

function Stack({ stage: { data }, span }: SpanProps) {
  const lines = data.toStackParts(span);
  if (!lines.length) return null;
  return (
    <div class="timeline-stack">
      <h3>Stack, the innermost first</h3>
      <ol>
        {lines.map((line, at) => (
          <li key={at}>
            <Name text={line} />
          </li>
        ))}
      </ol>
    </div>
  );
}
