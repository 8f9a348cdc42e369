/** The columns of a table that fit on the screen. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { counted } from "../format";

const narrow = matchMedia("(width < 600px)");

interface Column {
  title: string;
  isDetail?: boolean;
}

/** The columns to show, and a button for the others: a narrow screen has those without details, and the sorted one. */
export function useShownColumns<Shown extends Column>(columns: Shown[], sortedBy = ""): [Shown[], ComponentChildren] {
  const [isNarrow, setIsNarrow] = useState(narrow.matches);
  const [areAllShown, setAreAllShown] = useState(false);
  useEffect(() => {
    const update = () => setIsNarrow(narrow.matches);
    narrow.addEventListener("change", update);
    return () => narrow.removeEventListener("change", update);
  }, []);
  const main = columns.filter(({ title, isDetail }) => !isDetail || title === sortedBy);
  const numDetails = columns.length - main.length;
  if (!isNarrow || !numDetails) return [columns, null];
  const button = (
    <button type="button" onClick={() => setAreAllShown(!areAllShown)}>
      {areAllShown ? `Hide ${counted(numDetails, "column")}` : `Show ${counted(numDetails, "more column")}`}
    </button>
  );
  return [areAllShown ? columns : main, button];
}
