import { useState } from "preact/hooks";
import { cssColour, PHASE_COLOURS } from "../colours";
import { counted, formatCount, formatDuration } from "../format";
import type { Piece } from "../page_data";
import { Columns, type StackColumn } from "../parts/columns";
import { Legend } from "../parts/legend";

interface AllStepsProps {
  /** Sentences on all steps. */
  summary: string;
  pieces: Piece[];
}

/** The times of all steps of the run, and the recorded ones among them. */
export function AllSteps({ summary, pieces }: AllStepsProps) {
  const [shown, setShown] = useState<number | null>(null);
  const places = spread(pieces);
  const columns = places.map(columnOf);
  const pointed = shown === null ? null : columns[shown];
  return (
    <section class="all-steps" aria-labelledby="all-steps-title">
      <h2 id="all-steps-title">All steps of the run</h2>
      <p>{summary}</p>
      <Columns
        label="All steps of the run"
        noun="step"
        columns={columns}
        shown={shown}
        onShow={setShown}
        onChoose={setShown}
      />
      <Legend
        title={pointed && shown !== null ? `${pointed.title}${slowestOf(places[shown])}` : "A step, on the host"}
        noun="Steps"
        parts={pointed?.parts.filter(({ value }) => value) ?? legendOf(columns)}
      />
    </section>
  );
}

/** One column per step; steps with a common mean have equal columns. */
function spread(pieces: Piece[]): Piece[] {
  return pieces.flatMap((piece) => Array<Piece>(piece.width).fill(piece));
}

function columnOf(piece: Piece, at: number): StackColumn {
  const [first, last] = [piece.step, piece.last_step].map(formatCount);
  const isRecorded = piece.num_recorded > 0;
  const recorded = isRecorded && piece.num_steps > 1 ? `, ${formatCount(piece.num_recorded)} of them recorded` : "";
  return {
    title: piece.num_steps > 1 ? `Steps ${first} to ${last}, on average${recorded}` : `Step ${first}`,
    number: at,
    name: first,
    timeNs: piece.mean_ns,
    parts: [
      { name: "Recorded", colour: cssColour(PHASE_COLOURS.forward), value: isRecorded ? piece.mean_ns : 0 },
      { name: "Not recorded", colour: "var(--unknown)", value: isRecorded ? 0 : piece.mean_ns },
    ],
  };
}

function slowestOf({ num_steps: numSteps, most_ns: mostNs }: Piece): string {
  return numSteps > 1 ? `; the slowest of ${counted(numSteps, "step")} took ${formatDuration(mostNs)}` : "";
}

function legendOf(columns: StackColumn[]): StackColumn["parts"] {
  return (columns[0]?.parts ?? []).map((part) => ({ ...part, value: null }));
}
