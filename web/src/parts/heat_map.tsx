/** Values of rows and columns as colours, such as of ranks and steps. Pointer and arrow keys select a cell. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { canvasColour } from "../colours";
import { useTheme } from "../theme";
import { useWidth } from "./use_width";
import "./heat_map.css";
import {
  colourRamp,
  drawHeatMap,
  drawShades,
  LEFT,
  rangeOf,
  rowHeight,
  type HeatCells,
  type HeatRange,
} from "./heat_drawing";

interface HeatMapProps {
  label: string;
  cells: HeatCells;
  format: (value: number | null) => string;
  /** Label of a cell, before its value. */
  describeCell: (row: number, column: number) => string;
  onChoose?: (row: number, column: number) => void;
  /** Start the colour scale at 0 instead of the lowest value. */
  isFromZero?: boolean;
}

interface Cell {
  row: number;
  column: number;
}

const MOVES: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

export function HeatMap({ label, cells, format, describeCell, onChoose, isFromZero }: HeatMapProps) {
  const [shown, setShown] = useState<Cell | null>(null);
  const range = useMemo(() => rangeOf(cells, isFromZero), [cells, isFromZero]);
  const { canvas, width } = useDrawing(cells, range, shown);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && shown) return onChoose?.(shown.row, shown.column);
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    setShown(shown ? moved(shown, move, cells) : { row: 0, column: 0 });
  };
  const cellAt = (event: { offsetX: number; offsetY: number }) => pointedCell(event, cells, width);
  return (
    <div class="heat-map">
      <div class="heat-scale">
        <span>{format(range.min)}</span>
        <span class="heat-ramp" />
        <span>{range.isCut ? `at least ${format(range.max)}` : format(range.max)}</span>
        <output>
          {shown ? `${describeCell(shown.row, shown.column)}: ${format(cells.value(shown.row, shown.column))}` : ""}
        </output>
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions, jsx-a11y/no-noninteractive-tabindex -- it takes keys */}
      <div role="application" aria-label={label} tabIndex={0} onKeyDown={onKeyDown}>
        <canvas
          ref={canvas}
          style={{ height: `${heightOf(cells)}px` }}
          onPointerMove={(event) => setShown(cellAt(event))}
          onPointerLeave={() => setShown(null)}
          onClick={(event) => {
            const cell = cellAt(event);
            if (cell) onChoose?.(cell.row, cell.column);
          }}
        />
      </div>
    </div>
  );
}

/** A canvas that is drawn again when cells, theme or width change. */
function useDrawing(cells: HeatCells, range: HeatRange, shown: Cell | null) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(canvas);
  const theme = useTheme();
  const colours = useMemo(() => {
    const ramp = colourRamp([0, 1, 2].map((at) => canvasColour(`heat-${at}`)));
    return { ramp, text: canvasColour("text"), quiet: canvasColour("quiet") };
  }, [theme]);
  const shades = useMemo(
    () => drawShades(cells, range, colours.ramp, Math.max(1, width - LEFT)),
    [cells, range, colours, width],
  );
  useEffect(() => {
    if (canvas.current && width) drawHeatMap(canvas.current, { cells, shades, width, colours, shown });
  }, [cells, shades, width, colours, shown]);
  return { canvas, width };
}

function moved(cell: Cell, [down, right]: [number, number], cells: HeatCells): Cell {
  return {
    row: clamped(cell.row + down, cells.rows.length),
    column: clamped(cell.column + right, cells.columns.length),
  };
}

function pointedCell(event: { offsetX: number; offsetY: number }, cells: HeatCells, width: number): Cell | null {
  const column = Math.floor(((event.offsetX - LEFT) / (width - LEFT)) * cells.columns.length);
  const row = Math.floor(event.offsetY / rowHeight(cells));
  const isInside = column >= 0 && column < cells.columns.length && row < cells.rows.length;
  return isInside ? { row, column } : null;
}

function heightOf(cells: HeatCells): number {
  return rowHeight(cells) * cells.rows.length + 20;
}

function clamped(at: number, length: number): number {
  return Math.max(0, Math.min(length - 1, at));
}
