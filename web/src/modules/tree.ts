/** The tree of torch modules, whose rows are in order, each before those inside it. */
import type { Module, Modules } from "../page_data";

/** The row of a module with a qualified name; null if no row has it. */
export function findRow(modules: Modules | undefined, name: string | undefined): number | null {
  if (!modules || name === undefined) return null;
  const at = modules.rows.findIndex(({ names }) => names.includes(name));
  return at < 0 ? null : at;
}

/** The end of the rows inside a row: from the next one to before it. */
export function endOf(rows: Module[], at: number): number {
  const next = rows.findIndex((row, other) => other > at && row.level <= rows[at].level);
  return next < 0 ? rows.length : next;
}

/** The rows around a row, the innermost first. */
export function rowsAround(rows: Module[], at: number): number[] {
  const found: number[] = [];
  for (let other = at - 1, level = rows[at].level; other >= 0 && level > 0; other--) {
    if (rows[other].level >= level) continue;
    found.push(other);
    level = rows[other].level;
  }
  return found;
}

/** The qualified name of a row; of repeated blocks, the titles of the rows around it and its own. */
export function titleOf(rows: Module[], at: number): string {
  const { names } = rows[at];
  const titles = [at, ...rowsAround(rows, at)].map((other) => rows[other].title).reverse();
  return names.length === 1 ? names[0] : titles.join(" / ");
}

/** The rows with others inside. */
export function rowsWithInner(rows: Module[]): number[] {
  return rows.map((_, at) => at).filter((at) => (rows[at + 1]?.level ?? 0) > rows[at].level);
}

/** The rows that are not inside a closed one. */
export function visibleRows(rows: Module[], open: ReadonlySet<number>): number[] {
  const found: number[] = [];
  let level = 0;
  rows.forEach((row, at) => {
    if (row.level > level) return;
    found.push(at);
    level = open.has(at) ? row.level + 1 : row.level;
  });
  return found;
}

/** The longest forward or backward time, at least a nanosecond. */
export function longestSide(rows: Module[]): number {
  return rows.reduce((longest, row) => Math.max(longest, row.forward_ns ?? 0, row.backward_ns ?? 0), 1);
}
