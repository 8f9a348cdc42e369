/** Range, colours and drawing of a heat map. */

/** Titles of rows and columns, and the value of each cell; null for empty cells. */
export interface HeatCells {
  rows: string[];
  columns: string[];
  value: (row: number, column: number) => number | null;
}

export interface HeatRange {
  min: number;
  max: number;
  /** Some values are above `max`. */
  isCut: boolean;
}

export const LEFT = 62;
const TRUNCATION_FACTOR = 3;
/** Largest share of values that may be truncated. */
const MAX_TRUNCATED_SHARE = 1 / 200;
const SHADES = 256;
const MIN_ROW_HEIGHT = 7;
const MAX_ROW_HEIGHT = 26;
const HEIGHT = 420;
/** Few rows are higher, up to this height together. */
const MIN_HEIGHT = 130;

export function rowHeight(cells: HeatCells): number {
  const numRows = Math.max(1, cells.rows.length);
  const most = Math.max(MAX_ROW_HEIGHT, Math.floor(MIN_HEIGHT / numRows));
  return Math.max(MIN_ROW_HEIGHT, Math.min(most, Math.floor(HEIGHT / numRows)));
}

/** The range of values, optionally from 0; a few outliers far above the median do not determine it. */
export function rangeOf(cells: HeatCells, isFromZero = false): HeatRange {
  const values: number[] = [];
  forEachCell(cells, (value) => values.push(value));
  const sorted = Float64Array.from(values).sort();
  const highest = sorted.at(-1) ?? 0;
  const cut = TRUNCATION_FACTOR * (sorted[Math.floor(sorted.length / 2)] ?? 0);
  const isCut =
    cut > 0 && highest > cut && values.filter((value) => value > cut).length < values.length * MAX_TRUNCATED_SHARE;
  const min = isFromZero ? Math.min(0, sorted[0] ?? 0) : (sorted[0] ?? 0);
  return { min, max: isCut ? cut : highest, isCut };
}

/** The value per row and column of pixels: the highest where several cells share one. */
function binned(cells: HeatCells, maxColumns: number): { numColumns: number; values: Float64Array } {
  const numColumns = Math.min(cells.columns.length, Math.floor(maxColumns));
  const values = new Float64Array(numColumns * cells.rows.length).fill(NaN);
  forEachCell(cells, (value, row, column) => {
    const at = row * numColumns + Math.floor((column * numColumns) / cells.columns.length);
    if (!(values[at] >= value)) values[at] = value;
  });
  return { numColumns, values };
}

function forEachCell(cells: HeatCells, use: (value: number, row: number, column: number) => void): void {
  for (let row = 0; row < cells.rows.length; row++) {
    for (let column = 0; column < cells.columns.length; column++) {
      const value = cells.value(row, column);
      if (value !== null) use(value, row, column);
    }
  }
}

/** A colour gradient as red, green and blue bytes. */
export function colourRamp(colours: string[]): Uint8ClampedArray {
  const points = colours.map((colour) => (colour.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number));
  const ramp = new Uint8ClampedArray(SHADES * 3);
  for (let shade = 0; shade < SHADES; shade++) {
    const place = (shade / (SHADES - 1)) * (points.length - 1);
    const [from, to] = [points[Math.floor(place)], points[Math.ceil(place)]];
    for (let part = 0; part < 3; part++) ramp[shade * 3 + part] = from[part] + (to[part] - from[part]) * (place % 1);
  }
  return ramp;
}

export interface HeatPicture {
  cells: HeatCells;
  /** A pixel for each cell. */
  shades: HTMLCanvasElement;
  width: number;
  colours: { text: string; quiet: string };
  shown: { row: number; column: number } | null;
}

export function drawHeatMap(canvas: HTMLCanvasElement, picture: HeatPicture): void {
  const { cells, width, colours, shown } = picture;
  const [height, ratio] = [rowHeight(cells), devicePixelRatio || 1];
  const context = canvas.getContext("2d");
  if (!context || !picture.shades.width || !picture.shades.height) return;
  canvas.width = width * ratio;
  canvas.height = (height * cells.rows.length + 20) * ratio;
  context.scale(ratio, ratio);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture.shades, LEFT, 0, width - LEFT, height * cells.rows.length);
  drawTitles(context, picture);
  if (!shown) return;
  const column = (width - LEFT) / cells.columns.length;
  context.strokeStyle = colours.text;
  context.lineWidth = 2;
  context.strokeRect(LEFT + shown.column * column, shown.row * height, Math.max(2, column), height);
}

/** An image with a pixel per row, and per column or group of columns. */
export function drawShades(
  cells: HeatCells,
  range: HeatRange,
  ramp: Uint8ClampedArray,
  max: number,
): HTMLCanvasElement {
  const bins = binned(cells, max);
  const { min } = range;
  const small = document.createElement("canvas");
  [small.width, small.height] = [bins.numColumns, cells.rows.length];
  if (!small.width || !small.height) return small;
  const image = new ImageData(small.width, small.height);
  bins.values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    const share = range.max > min ? Math.min(1, (value - min) / (range.max - min)) : 0;
    const shade = Math.round(share * (SHADES - 1)) * 3;
    image.data.set([...ramp.subarray(shade, shade + 3), 255], at * 4);
  });
  small.getContext("2d")?.putImageData(image, 0, 0);
  return small;
}

function drawTitles(context: CanvasRenderingContext2D, { cells, width, colours }: HeatPicture): void {
  const height = rowHeight(cells);
  const every = Math.ceil(14 / height);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = colours.quiet;
  context.textBaseline = "middle";
  cells.rows.forEach((title, row) => {
    if (row % every === 0) context.fillText(title, 0, Math.max(7, (row + 0.5) * height), LEFT - 6);
  });
  context.textBaseline = "bottom";
  const bottom = height * cells.rows.length + 20;
  const column = (width - LEFT) / cells.columns.length;
  const apart = Math.ceil(90 / column);
  for (let at = 0; at < cells.columns.length; at += apart) {
    while (!cells.columns[at] && at < cells.columns.length - 1) at++; // a gap has no title
    if (at === 0 || LEFT + at * column < width - 50) context.fillText(cells.columns[at], LEFT + at * column, bottom);
  }
}
