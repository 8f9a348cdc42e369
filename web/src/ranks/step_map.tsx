import { useMemo, useState } from "preact/hooks";
import type { RunReport } from "../page_data";
import { layOutColumns } from "../parts/axis";
import { Choice, useLinkedChoice } from "../parts/choice";
import { HeatMap } from "../parts/heat_map";
import { Table, type TableColumn } from "../parts/table";
import { detail } from "../parts/unit_columns";
import type { Payload } from "../payload";
import { linkToStep } from "../view_links";
import { rankSteps, type RankStep } from "../step_breakdowns";
import { firstMeasure, knownMeasures, type Measure } from "./measures";

/** All steps of all ranks as a heat map. */
export function StepMap({ payload, report }: { payload: Payload; report: RunReport }) {
  const { page } = payload;
  const steps = useMemo(() => rankSteps(payload), [payload]);
  const measures = useMemo(() => knownMeasures(steps), [steps]);
  const names = measures.map(({ name }) => name);
  const [name, choose] = useLinkedChoice("measure", names, firstMeasure(report));
  const measure = measures.find((measure) => measure.name === name) ?? measures[0];
  const grid = useMemo(() => gridOf(steps), [steps]);
  const cells = useMemo(() => cellsOf(grid, measure), [grid, measure]);
  const onChoose = (row: number, column: number) => {
    const step = grid.steps[row][column];
    const link = step && linkToStep(step.row, page);
    if (link) location.hash = link.href;
  };
  return (
    <section aria-labelledby="step-map-title">
      <div class="by-step">
        <h2 id="step-map-title">Steps of all ranks</h2>
        <Choice
          title="Show"
          options={names}
          labels={Object.fromEntries(measures.map(({ name, title }) => [name, title]))}
          chosen={measure.name}
          onChoose={choose}
        />
      </div>
      <HeatMap
        label={`${measure.title} of each rank and step. Arrow keys select a cell, Enter shows it in the timeline.`}
        cells={cells}
        format={measure.format}
        isFromZero={measure.isFromZero}
        describeCell={(row, column) =>
          `${cells.rows[row]}, ${grid.numbers[column] === null ? GAP : `step ${grid.numbers[column]}`}`
        }
        onChoose={onChoose}
      />
      <AsTable steps={steps} measures={measures} />
    </section>
  );
}

/** So few steps have their table open at first: their map is small. */
const MAX_OPEN_STEPS = 20;

function AsTable({ steps, measures }: { steps: RankStep[]; measures: Measure[] }) {
  const [isOpen, setIsOpen] = useState(steps.length <= MAX_OPEN_STEPS);
  const columns: TableColumn<RankStep>[] = [
    { title: "Rank", value: (step) => step.row.rank },
    { title: "Step", value: (step) => step.row.step },
    ...measures.map(({ title, value, format }, at) => {
      const column = { title, value, show: (step: RankStep) => format(value(step)) };
      return at < 2 ? column : detail(column);
    }),
  ];
  return (
    <details open={isOpen} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {isOpen && <Table caption="Each step of each rank" columns={columns} rows={steps} noun="step" maxRows={50} />}
    </details>
  );
}

interface Grid {
  ranks: (number | null)[];
  /** Null in gaps between recorded steps. */
  numbers: (number | null)[];
  steps: (RankStep | undefined)[][];
}

const GAP = "steps that were not recorded";

/** Steps by rank and number, with gaps between windows; of a step that was recorded several times, the last one. */
function gridOf(steps: RankStep[]): Grid {
  const ranks = [...new Set(steps.map((step) => step.row.rank))];
  const recorded = [...new Set(steps.map((step) => step.row.step))].sort((one, other) => one - other);
  const { lefts, width } = layOutColumns(recorded);
  const numbers = new Array<number | null>(width).fill(null);
  recorded.forEach((number, at) => (numbers[lefts[at]] = number));
  const columnOf = new Map(recorded.map((number, at) => [number, lefts[at]]));
  const grid = new Map(ranks.map((rank) => [rank, new Array<RankStep | undefined>(width)]));
  for (const step of steps) grid.get(step.row.rank)![columnOf.get(step.row.step)!] = step;
  return { ranks, numbers, steps: [...grid.values()] };
}

function cellsOf(grid: Grid, measure: Measure) {
  return {
    rows: grid.ranks.map((rank) => (rank === null ? "The run" : `Rank ${rank}`)),
    columns: grid.numbers.map((number) => (number === null ? "" : `Step ${number}`)),
    value: (row: number, column: number) => {
      const step = grid.steps[row][column];
      return step ? measure.value(step) : null;
    },
  };
}
