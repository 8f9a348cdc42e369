import { useState } from "preact/hooks";
import { cssColour, PHASE_COLOURS } from "../colours";
import { counted, formatCount, formatDuration } from "../format";
import type { Piece } from "../page_data";
import { Columns, type ColumnMark, type StackColumn } from "../parts/columns";
import { Swatch } from "../parts/swatch";

interface AllStepsProps {
  /** Sentences on all steps. */
  summary: string;
  pieces: Piece[];
}

/** The times of all steps of the run, with profiling windows, evaluations, checkpoints and restarts. */
export function AllSteps({ summary, pieces }: AllStepsProps) {
  const [shown, setShown] = useState<number | null>(null);
  const places = spread(pieces);
  const columns = places.map(columnOf);
  const marks = MARKS.map((mark) => ({ ...mark, at: placesOf(places, mark.isAt) }));
  const pointed = shown === null ? null : columns[shown];
  return (
    <section class="all-steps" aria-labelledby="all-steps-title">
      <h2 id="all-steps-title">All steps of the run</h2>
      <p aria-live="polite">{pointed && shown !== null ? describe(pointed, places[shown]) : summary}</p>
      <Columns
        label="All steps of the run"
        noun="step"
        columns={columns}
        marks={marks}
        shown={shown}
        onShow={setShown}
      />
      <ul class="legend" aria-label="Colours and symbols">
        {columns[0]?.parts.map(({ name, colour }) => (
          <li key={name}>
            <Swatch colour={colour} />
            {name}
          </li>
        ))}
        {marks.map(({ symbol, title, at }) => at.length > 0 && <li key={title}>{`${symbol} ${title}`}</li>)}
      </ul>
    </section>
  );
}

type IsAt = (piece: Piece, before?: Piece) => boolean;

const MARKS: (Pick<ColumnMark, "symbol" | "title"> & { isAt: IsAt })[] = [
  { symbol: "▼", title: "evaluation", isAt: (piece) => (piece.evaluation_ns ?? 0) > 0 },
  { symbol: "◆", title: "checkpoint", isAt: (piece) => (piece.checkpoint_ns ?? 0) > 0 },
  { symbol: "↻", title: "restart", isAt: (piece, before) => before !== undefined && before.attempt < piece.attempt },
];

function placesOf(pieces: Piece[], isAt: IsAt): number[] {
  return [...pieces.keys()].filter((at) => isAt(pieces[at], pieces[at - 1]));
}

/** One column per step; steps with a common mean have equal columns. */
function spread(pieces: Piece[]): Piece[] {
  return pieces.flatMap((piece) => Array<Piece>(piece.width).fill(piece));
}

function columnOf(piece: Piece, at: number): StackColumn {
  const [first, last] = [piece.step, piece.last_step].map(formatCount);
  const isRecorded = piece.num_recorded > 0;
  const recorded = isRecorded && piece.num_steps > 1 ? `, ${formatCount(piece.num_recorded)} of them profiled` : "";
  return {
    title: piece.num_steps > 1 ? `Steps ${first} to ${last}, on average${recorded}` : `Step ${first}`,
    number: at,
    name: first,
    timeNs: piece.mean_ns,
    parts: [
      { name: "Profiled", colour: cssColour(PHASE_COLOURS.forward), value: isRecorded ? piece.mean_ns : 0 },
      { name: "Not profiled", colour: "var(--unknown)", value: isRecorded ? 0 : piece.mean_ns },
    ],
  };
}

function describe(column: StackColumn, { num_steps: numSteps, max_duration_ns: maxNs }: Piece): string {
  const slowest = numSteps > 1 ? `; the slowest of ${counted(numSteps, "step")} took ${formatDuration(maxNs)}` : "";
  return `${column.title}: ${formatDuration(column.timeNs)} on the CPU${slowest}`;
}
