import type { TimelineData } from "./data";

/** Spans whose names contain all words of a search. */
export interface Matches {
  query: string;
  /** For each text: does it match. */
  texts: Uint8Array;
  /** For each span: is it searched; null searches all. */
  shown: Uint8Array | null;
  count: number;
}

export function findMatches(data: TimelineData, query: string, shown: Uint8Array | null = null): Matches | null {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const texts = new Uint8Array(data.texts.length);
  data.texts.forEach((text, at) => {
    const lower = text.toLowerCase();
    texts[at] = Number(words.every((word) => lower.includes(word)));
  });
  const matches = { query, texts, shown, count: 0 };
  return { ...matches, count: countMatches(data, matches) };
}

function countMatches(data: TimelineData, matches: Matches): number {
  let count = 0;
  for (let span = 0; span < data.size; span++) count += Number(isMatch(data, matches, span));
  return count;
}

function isMatch({ columns: { names } }: TimelineData, { texts, shown }: Matches, span: number): boolean {
  return texts[names[span]] === 1 && (!shown || shown[span] === 1);
}

/** The next or previous match in time, cyclic; -1 without one. Equal starts are ordered by index. */
export function nextMatch(data: TimelineData, matches: Matches, from: number | null, isForward: boolean): number {
  const { begins, size } = data;
  const sign = isForward ? 1 : -1;
  const now = from === null ? Infinity : sign * begins[from];
  let [next, nextTime, first, firstTime] = [-1, Infinity, -1, Infinity];
  for (let at = 0; at < size; at++) {
    const span = isForward ? at : size - 1 - at;
    if (!isMatch(data, matches, span)) continue;
    const time = sign * begins[span];
    if (time < firstTime) [first, firstTime] = [span, time];
    const isAfter = time > now || (time === now && sign * (span - from!) > 0);
    if (isAfter && time < nextTime) [next, nextTime] = [span, time];
  }
  return next < 0 ? first : next;
}

/** The number of a match, from 1; 0 for other spans. */
export function matchNumber(data: TimelineData, matches: Matches, span: number | null): number {
  const { begins, size } = data;
  if (span === null || !isMatch(data, matches, span)) return 0;
  const time = begins[span];
  let number = 1;
  for (let other = 0; other < size; other++) {
    const isBefore = begins[other] < time || (begins[other] === time && other < span);
    if (isBefore && isMatch(data, matches, other)) number++;
  }
  return number;
}

/** The longest match, with the exact name if there is one; -1 without one. */
export function longestMatch(data: TimelineData, matches: Matches): number {
  const { durations } = data;
  const { names } = data.columns;
  const exact = data.texts.indexOf(matches.query);
  let [longest, isExact] = [-1, false];
  for (let span = 0; span < names.length; span++) {
    const isName = names[span] === exact;
    if (!isMatch(data, matches, span) || (isExact && !isName)) continue;
    if (longest < 0 || (isName && !isExact) || durations[span] > durations[longest]) longest = span;
    isExact ||= isName;
  }
  return longest;
}
