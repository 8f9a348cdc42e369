/** The module of the link, to which views are filtered. */
import { navigate, readLink } from "../link";
import type { Module, PageData } from "../page_data";
import { endOf, findRow, rowsAround } from "./tree";

/** A row of the tree of modules; those inside it are the rows up to `end`. */
export interface ChosenModule {
  at: number;
  end: number;
  /** The qualified name; of repeated blocks, the titles of the rows around and its own. */
  title: string;
}

/** The chosen module; null without one. */
export function chosenModule({ modules }: PageData): ChosenModule | null {
  const at = findRow(modules, readLink().module);
  if (!modules || at === null) return null;
  const { rows } = modules;
  const titles = [at, ...rowsAround(rows, at)].map((other) => rows[other].title).reverse();
  const title = rows[at].names.length === 1 ? rows[at].names[0] : titles.join(" / ");
  return { at, end: endOf(rows, at), title };
}

/** Filter the views to a module, or show all; the Back button undoes it. */
export function chooseModule(row: Module | null): void {
  navigate({ ...readLink(), module: row?.names[0] });
}
