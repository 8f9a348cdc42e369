import { readLink, updateLink, type Link } from "../link";
import { longestMatch } from "./search";
import type { Stage } from "./stage";
import type { View } from "./view";

const WAIT_MS = 300;
const LINK_NAMES = ["from", "to", "rank", "q", "span", "range", "finding", "pin"];

/**
 * Restore the state of a link: the visible range (`from`, `to`), a rank, a search (`q`), a `span` (`longest` is
 * the longest match), a measured `range` as in `1000~2000`, and pinned tracks (`pin`, as in `3~7`), in recorded
 * time. A link without any of these changes nothing.
 */
export function applyLink(stage: Stage, link: Link): void {
  if (LINK_NAMES.every((name) => link[name] === undefined)) return;
  const [from, to, rank] = [link.from, link.to, link.rank].map(numberOf);
  if ((link.q ?? "") !== (stage.matches?.query ?? "")) stage.search(link.q ?? "");
  if (rank !== null) stage.goToRank(rank);
  else stage.change({ markedRank: null });
  if (from !== null && to !== null && to > from) stage.show(foldedView(stage, from, to));
  if (link.pin !== undefined) stage.pin(link.pin.split("~").map(Number));
  applyRange(stage, link);
  applySelection(stage, link, from === null);
}

function foldedView({ fold }: Stage, from: number, to: number): View {
  return { from: fold.folded(from), to: fold.folded(to) };
}

function applyRange(stage: Stage, link: Link): void {
  const [from, to] = (link.range ?? "").split("~").map(numberOf);
  if (from !== null && to != null)
    stage.change({ range: { ...foldedView(stage, from, to), rows: null }, panel: "range" });
  else if (stage.range) stage.clearRange();
}

function applySelection(stage: Stage, link: Link, shouldMove: boolean): void {
  const longest = link.span === "longest" && stage.matches ? longestMatch(stage.data, stage.matches) : -1;
  const span = longest >= 0 ? longest : numberOf(link.span);
  if (span === null || span < 0 || span >= stage.data.size) stage.select(null);
  else {
    stage.select(span, shouldMove);
    stage.scrollToSpan(span);
  }
}

function numberOf(text: string | undefined): number | null {
  const number = Number(text || NaN);
  return Number.isFinite(number) ? Math.round(number) : null;
}

/** Keep the link in step with the state. Returns a function that stops it. */
export function keepLink(stage: Stage): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const save = () => {
    timer = undefined;
    if (readLink().view === "timeline") updateLink(buildLink(stage));
  };
  const stopListening = stage.listen(() => {
    timer ??= setTimeout(save, WAIT_MS);
  });
  return () => {
    stopListening();
    clearTimeout(timer);
  };
}

function buildLink(stage: Stage): Record<string, string | undefined> {
  const { view, whole, range, selected, matches, fold, pins } = stage;
  const real = (folded: number) => String(Math.round(fold.real(folded)));
  const isWhole = view.from <= whole.from && view.to >= whole.to;
  return {
    from: isWhole ? undefined : real(view.from),
    to: isWhole ? undefined : real(view.to),
    q: matches?.query,
    span: selected === null ? undefined : String(selected),
    pin: pins.length ? pins.join("~") : undefined,
    range: range ? `${real(range.from)}~${real(range.to)}` : undefined,
  };
}
