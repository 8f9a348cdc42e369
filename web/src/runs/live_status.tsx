/** The status of a run: its figures, phases, all steps, and ranks, as of the last refresh. */
import { useState } from "preact/hooks";
import { cssColour, PHASE_COLOURS } from "../colours";
import { formatCount, formatDuration } from "../format";
import { Columns, type StackColumn } from "../parts/columns";
import { Legend } from "../parts/legend";
import { Name } from "../parts/name";
import { PartList } from "../parts/part_list";
import { useShownColumns } from "../parts/shown_columns";
import { Bar, lengthOf, type StackPart } from "../parts/stack";
import type { LivePhase, LiveSteps, StatusScreen, StepPiece } from "./list_data";
import { formatState } from "./labels";

const COLOURS: Record<string, string> = {
  data_wait: cssColour(PHASE_COLOURS.data),
  forward: cssColour(PHASE_COLOURS.forward),
  backward: cssColour(PHASE_COLOURS.backward),
  optimizer: cssColour(PHASE_COLOURS.optimizer),
  evaluation: cssColour(PHASE_COLOURS.evaluation),
  checkpoint: cssColour(PHASE_COLOURS.between),
  other: cssColour(PHASE_COLOURS.other),
};

export function LiveStatus({ status, steps }: { status: StatusScreen; steps: LiveSteps | null }) {
  return (
    <section class="now" aria-label="Status of the run">
      {steps ? (
        <div class="hero">
          <p class={`state ${status.state}`}>{formatState(status.state)}</p>
          <dl>
            {steps.figures.map(({ name, value }) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </div>
      ) : (
        <p class={`state ${status.state}`}>{status.headline}</p>
      )}
      {status.sentences.map((sentence) => (
        <p key={sentence}>
          <Name text={sentence} maxLength={1000} />
        </p>
      ))}
      {steps && <LastSteps steps={steps} />}
      {steps && <StepTimes steps={steps} />}
      {status.rows.length > 0 && <RankTable status={status} />}
      {status.rest && <p>{status.rest}</p>}
    </section>
  );
}

function stackOf(phases: LivePhase[], times: (number | null)[]): StackPart[] {
  return phases.map(({ name, label }, at) => ({
    name: label.charAt(0).toUpperCase() + label.slice(1),
    value: times[at],
    colour: COLOURS[name],
  }));
}

/** Phases of the last steps as one bar. */
function LastSteps({ steps: { num_last, phases } }: { steps: LiveSteps }) {
  const parts = stackOf(
    phases,
    phases.map(({ time_ns }) => time_ns),
  ).map((part, at) => ({ ...part, share: phases[at].share }));
  const shown = parts.filter(({ share }) => share);
  if (shown.length < 2) return null;
  return (
    <section class="last-steps" aria-labelledby="last-steps-title">
      <h2 id="last-steps-title">{`Last ${num_last} steps`}</h2>
      <Bar parts={shown} longest={lengthOf(shown)} />
      <PartList parts={shown} />
    </section>
  );
}

/** The times of all steps of one rank, with their phases. */
export function StepTimes({ steps: { pieces, phases, rank } }: { steps: LiveSteps }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const columns = pieces.map((piece, at) => columnOf(piece, at, phases));
  if (columns.length < 2) return null;
  const shown = chosen !== null && chosen < columns.length ? chosen : null;
  const pointed = shown === null ? null : columns[shown];
  const known = (columns[0]?.parts ?? []).filter((_, at) => columns.some(({ parts }) => parts[at].value));
  return (
    <section class="all-steps" aria-labelledby="all-steps-title">
      <h2 id="all-steps-title">{`Step time of rank ${rank}`}</h2>
      <Columns label="Time of each step" noun="step" columns={columns} shown={shown} onShow={setChosen} />
      <Legend
        title={pointed?.title ?? "A step, on the CPU"}
        noun="Steps"
        parts={pointed?.parts.filter(({ value }) => value) ?? known.map((part) => ({ ...part, value: null }))}
      />
    </section>
  );
}

function columnOf(piece: StepPiece, at: number, phases: LivePhase[]): StackColumn {
  const [first, last] = [piece.step, piece.last_step].map(formatCount);
  const slowest = `; the slowest took ${formatDuration(piece.max_duration_ns)}`;
  const isKnown = piece.phases_ns.some((time) => time !== null);
  const times = isKnown ? piece.phases_ns : phases.map(({ name }) => (name === "other" ? piece.mean_ns : null));
  return {
    title: piece.num_steps > 1 ? `Steps ${first} to ${last}, on average${slowest}` : `Step ${first}`,
    number: at,
    name: first,
    timeNs: piece.mean_ns,
    parts: stackOf(phases, times),
  };
}

/** Columns of the table of ranks on narrow screens. */
const MAIN_COLUMNS = ["rank", "state", "step", "takes"];

function RankTable({ status: { columns: titles, rows } }: { status: StatusScreen }) {
  const all = titles.map((title, index) => ({ title, index, isDetail: !MAIN_COLUMNS.includes(title) }));
  const { shown: columns, button, scroller } = useShownColumns(all);
  const isNumber = (index: number) => rows.every(({ cells }) => /^\d|^$/.test(cells[index]));
  return (
    <>
      {button}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keys */}
      <section class="table-scroll" ref={scroller} aria-label="Status of each rank" tabIndex={0}>
        <table>
          <thead>
            <tr>
              {columns.map(({ title, index }) => (
                <th key={title} scope="col" class={isNumber(index) ? "number" : ""}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(({ state, cells }) => (
              <tr key={cells[0]}>
                {columns.map(({ title, index }) => (
                  <td key={title} class={isNumber(index) ? "number" : "short"}>
                    {title === "state" ? (
                      <span class={`state ${state}`}>{cells[index]}</span>
                    ) : (
                      <Name text={cells[index]} />
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}
