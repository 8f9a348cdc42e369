/** Table columns of numbers with a unit. */
import { formatBytes, formatCount, formatDuration, formatOperations, formatRate, formatShare } from "../format";
import type { TableColumn } from "./table_rows";

type Value<Row> = (row: Row) => number | null;
type Build = <Row>(title: string, value: Value<Row>, help?: string, whole?: number | null) => TableColumn<Row>;

function columnsIn(unit: string | undefined, format: (value: number | null) => string): Build {
  return (title, value, help, whole) => ({ title, value, show: (row) => format(value(row)), unit, help, whole });
}

export const timeColumn = columnsIn("ns", formatDuration);
export const bytesColumn = columnsIn("bytes", formatBytes);
export const rateColumn = columnsIn("bytes/s", formatRate);
export const flopColumn = columnsIn("FLOP", formatOperations);
export const countColumn = columnsIn(undefined, formatCount);
export const shareColumn = columnsIn(undefined, formatShare);

/** A column that narrow screens hide. */
export function detail<Row>(column: TableColumn<Row>): TableColumn<Row> {
  return { ...column, isDetail: true };
}
