import type { TimelineData } from "./data";

/** Spans whose names contain all words of a search. */
export interface Matches {
  query: string;
  /** For each text: does it match. */
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

/** The next or previous match in time, cyclic; -1 without one. Equal starts are ordered by index. */
export function nextMatch(data: TimelineData, matches: Matches, from: number | null, isForward: boolean): number {
  const { begins } = data;
  const { names } = data.columns;
  const sign = isForward ? 1 : -1;
  const now = from === null ? Infinity : sign * begins[from];
  let [next, nextTime, first, firstTime] = [-1, Infinity, -1, Infinity];
  for (let at = 0; at < names.length; at++) {
    const span = isForward ? at : names.length - 1 - at;
    if (!matches.texts[names[span]]) continue;
    const time = sign * begins[span];
    if (time < firstTime) [first, firstTime] = [span, time];
    const isAfter = time > now || (time === now && sign * (span - from!) > 0);
    if (isAfter && time < nextTime) [next, nextTime] = [span, time];
  }
  return next < 0 ? first : next;
}

/** The number of a match, from 1; 0 for other spans. */
export function matchNumber(data: TimelineData, matches: Matches, span: number | null): number {
  const { begins } = data;
  const { names } = data.columns;
  if (span === null || !matches.texts[names[span]]) return 0;
  const time = begins[span];
  let number = 1;
  for (let other = 0; other < names.length; other++) {
    const isBefore = begins[other] < time || (begins[other] === time && other < span);
    if (isBefore && matches.texts[names[other]]) number++;
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
    if (!matches.texts[names[span]] || (isExact && !isName)) continue;
    if (longest < 0 || (isName && !isExact) || durations[span] > durations[longest]) longest = span;
    isExact ||= isName;
  }
  return longest;
}
