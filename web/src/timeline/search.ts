import type { TimelineData } from "./data";

/** The spans whose names have all words of what was searched. */
export interface Matches {
  query: string;
  /** For each text, whether it matches. */
  texts: Uint8Array;
  count: number;
}

export function findMatches(data: TimelineData, query: string): Matches | null {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const texts = new Uint8Array(data.texts.length);
  data.texts.forEach((text, at) => {
    const lower = text.toLowerCase();
    texts[at] = Number(words.every((word) => lower.includes(word)));
  });
  return { query, texts, count: countMatches(data, texts) };
}

function countMatches(data: TimelineData, texts: Uint8Array): number {
  const { names } = data.columns;
  let count = 0;
  for (let span = 0; span < names.length; span++) count += texts[names[span]];
  return count;
}

/** The next match in time, or the one before, and around at the end; among equal begins by place. */
export function nextMatch(data: TimelineData, matches: Matches, from: number | null, isForward: boolean): number {
  const { names } = data.columns;
  let best = -1;
  let furthest = -1;
  for (let span = 0; span < names.length; span++) {
    if (!matches.texts[names[span]]) continue;
    if (furthest < 0 || isBefore(data, span, furthest) === isForward) furthest = span;
    if (from !== null && (span === from || isBefore(data, from, span) !== isForward)) continue;
    if (best < 0 || isBefore(data, span, best) === isForward) best = span;
  }
  return best < 0 ? furthest : best;
}

/** Which match a span is, from 1; 0 if it is none. */
export function placeOf(data: TimelineData, matches: Matches, span: number | null): number {
  const { names } = data.columns;
  if (span === null || !matches.texts[names[span]]) return 0;
  let place = 1;
  for (let other = 0; other < names.length; other++) {
    if (matches.texts[names[other]] && isBefore(data, other, span)) place++;
  }
  return place;
}

function isBefore(data: TimelineData, span: number, other: number): boolean {
  const difference = data.begins[span] - data.begins[other];
  return difference < 0 || (difference === 0 && span < other);
}
