/** The module of the link, to which views are filtered. */
import { navigate, readLink } from "../link";
import type { Module, PageData } from "../page_data";
import { endOf, findRow, titleOf } from "./tree";

/** A row of the tree of modules; those inside it are the rows up to `end`. */
export interface ChosenModule {
  at: number;
  end: number;
  title: string;
}

/** The chosen module; null without one. */
export function chosenModule({ modules }: PageData): ChosenModule | null {
  const at = findRow(modules, readLink().module);
  if (!modules || at === null) return null;
  return { at, end: endOf(modules.rows, at), title: titleOf(modules.rows, at) };
}

/** Filter the views to a module, or show all; the Back button undoes it. */
export function chooseModule(row: Module | null): void {
  navigate({ ...readLink(), module: row?.names[0] });
}
