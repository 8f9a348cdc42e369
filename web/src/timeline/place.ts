import { readLink, remember, type Link } from "../link";
import type { Stage } from "./stage";

const WAIT_MS = 300;

/** Goes where a link says. */
export function goTo(stage: Stage, link: Link): void {
  const [from, to, rank, span] = [link.from, link.to, link.rank, link.span].map(numberOf);
  if (rank !== null) stage.goToRank(rank);
  if (from !== null && to !== null && to > from) stage.show({ from, to });
  if (link.q !== undefined && link.q !== stage.matches?.query) stage.search(link.q);
  const range = (link.range ?? "").split("~").map(numberOf);
  if (range[0] !== null && range[1] != null) {
    stage.change({ range: { from: range[0], to: range[1], rows: null }, panel: "range" });
  }
  if (span === null || span < 0 || span >= stage.data.size || span === stage.selected) return;
  stage.select(span, from === null);
  stage.scrollToSpan(span);
}

function numberOf(text: string | undefined): number | null {
  const number = Number(text || NaN);
  return Number.isFinite(number) ? Math.round(number) : null;
}

/** Keeps the address a link to where the reader is. Returns what stops that. */
export function rememberPlace(stage: Stage): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const save = () => {
    timer = undefined;
    if (readLink().view === "timeline") remember(placeOf(stage));
  };
  const stopListening = stage.listen(() => {
    timer ??= setTimeout(save, WAIT_MS);
  });
  return () => {
    stopListening();
    clearTimeout(timer);
  };
}

function placeOf(stage: Stage): Record<string, string | undefined> {
  const { view, whole, range, selected, matches } = stage;
  const isWhole = view.from <= whole.from && view.to >= whole.to;
  return {
    from: isWhole ? undefined : String(Math.round(view.from)),
    to: isWhole ? undefined : String(Math.round(view.to)),
    q: matches?.query,
    span: selected === null ? undefined : String(selected),
    range: range ? `${Math.round(range.from)}~${Math.round(range.to)}` : undefined,
  };
}
