/** The columns of a table that fit on the screen. */
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { counted } from "../format";
import { useWidth } from "./use_width";

const narrow = matchMedia("(width < 600px)");

interface Column {
  title: string;
  isDetail?: boolean;
}

interface ShownColumns<Shown> {
  shown: Shown[];
  /** A button for the others. */
  button: ComponentChildren;
  /** The element in which the table scrolls. */
  scroller: RefObject<HTMLElement | null>;
}

/** All columns if they fit; else without the last details, on a narrow screen without any, but the sorted column. */
export function useShownColumns<Shown extends Column>(columns: Shown[], sortedBy = ""): ShownColumns<Shown> {
  const scroller = useRef<HTMLElement>(null);
  const width = useWidth(scroller);
  const isNarrow = useIsNarrow();
  const [areAllShown, setAreAllShown] = useState(false);
  const [numFitting, setNumFitting] = useState(Infinity);
  const details = columns.filter(({ title, isDetail }) => isDetail && title !== sortedBy);
  const hidden = new Set(details.slice(isNarrow ? 0 : numFitting));
  const fitting = columns.filter((column) => !hidden.has(column));
  const titles = columns.map(({ title }) => title).join();
  useLayoutEffect(() => setNumFitting(Infinity), [width, titles]);
  useLayoutEffect(() => {
    if (areAllShown || isNarrow || !scroller.current) return;
    const numTooMany = countTooMany(scroller.current, fitting, details);
    if (numTooMany) setNumFitting(details.length - hidden.size - numTooMany);
  });
  const button = hidden.size > 0 && (
    <button type="button" onClick={() => setAreAllShown(!areAllShown)}>
      {areAllShown ? `Hide ${counted(hidden.size, "column")}` : `Show ${counted(hidden.size, "more column")}`}
    </button>
  );
  return { shown: areAllShown ? columns : fitting, button, scroller };
}

/** Return the number of details to hide, counted from the last one, so that the table fits. The last headings belong to columns. */
function countTooMany<Shown>(scroller: HTMLElement, columns: Shown[], details: Shown[]): number {
  const headings = [...scroller.querySelectorAll<HTMLElement>("thead th")].slice(-columns.length);
  let excess = scroller.scrollWidth - scroller.clientWidth;
  let count = 0;
  for (let at = columns.length - 1; at >= 0 && excess > 0; at--) {
    if (!details.includes(columns[at])) continue;
    excess -= headings[at].offsetWidth;
    count++;
  }
  return count;
}

function useIsNarrow(): boolean {
  const [isNarrow, setIsNarrow] = useState(narrow.matches);
  useEffect(() => {
    const update = () => setIsNarrow(narrow.matches);
    narrow.addEventListener("change", update);
    return () => narrow.removeEventListener("change", update);
  }, []);
  return isNarrow;
}
