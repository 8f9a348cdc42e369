/** Formatting of numbers with units, to three significant digits. */

const DURATIONS: [number, string][] = [
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];
const SIZES: [number, string][] = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
];
const OPERATIONS: [number, string][] = [
  [1e15, "PFLOP"],
  [1e12, "TFLOP"],
  [1e9, "GFLOP"],
  [1e6, "MFLOP"],
  [1e3, "kFLOP"],
  [1, "FLOP"],
];
const UNKNOWN = "–";

export function formatDuration(ns: number | null | undefined): string {
  return formatWithUnit(ns, DURATIONS, "ns");
}

export function formatBytes(bytes: number | null | undefined): string {
  return formatWithUnit(bytes, SIZES, "B");
}

export function formatRate(bytesPerSecond: number | null | undefined): string {
  return bytesPerSecond == null ? UNKNOWN : `${formatBytes(bytesPerSecond)}/s`;
}

/** FLOP with a unit. */
export function formatOperations(operations: number | null | undefined): string {
  return formatWithUnit(operations, OPERATIONS, "FLOP");
}

/** Cached: creating one takes longer than formatting a hundred numbers. */
const COUNTS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export function formatCount(count: number | null | undefined): string {
  return count == null ? UNKNOWN : COUNTS.format(count);
}

/** Numbers in order, with consecutive ones as ranges such as `11-25`. */
export function rangesOf(numbers: number[]): string[] {
  const ranges: [number, number][] = [];
  for (const number of numbers) {
    const last = ranges.at(-1);
    if (last?.[1] === number - 1) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`));
}

const MIN_SHOWN_SHARE = 0.0005;

/** A small share is never shown as 0. */
export function formatShare(share: number | null | undefined): string {
  if (share == null || !Number.isFinite(share)) return UNKNOWN;
  if (share > 0 && share < MIN_SHOWN_SHARE) return "<0.1 %";
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

function formatWithUnit(value: number | null | undefined, units: [number, string][], least: string): string {
  if (value == null || !Number.isFinite(value)) return UNKNOWN;
  if (value === 0) return `0 ${least}`;
  const [size, unit] = units.find(([size]) => Math.abs(value) >= size) ?? units[units.length - 1];
  return `${size === 1 && Number.isInteger(value) ? value : digits(value / size)} ${unit}`;
}

function digits(value: number): string {
  const before = Math.floor(Math.log10(Math.abs(value))) + 1;
  return value.toFixed(Math.max(0, Math.min(2, 3 - before)));
}

/** "1 call", "2 calls". */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${formatCount(count)} ${count === 1 ? noun : plural}`;
}

const FACTOR_THRESHOLD = 9;
const MAX_FACTOR = 1000;

/** A relative change such as "+4.2 %"; a large one as a factor such as "x12", capped. */
export function formatChange(part: number | null): string {
  if (part === null) return "–";
  if (part >= MAX_FACTOR) return `x${MAX_FACTOR.toLocaleString("en-US")}+`;
  if (part >= FACTOR_THRESHOLD) return `x${Math.round(1 + part).toLocaleString("en-US")}`;
  const percent = Math.abs(100 * part).toFixed(Math.abs(part) >= 1 ? 0 : 1);
  const sign = Number(percent) === 0 ? "" : part > 0 ? "+" : "−";
  return `${sign}${percent} %`;
}

/** A time in the reader's time zone; null for clocks that do not count from 1970. */
export function formatDate(unixNs: string): string | null {
  const milliseconds = Number(BigInt(unixNs) / 1_000_000n);
  if (milliseconds < 1e12) return null;
  return new Date(milliseconds).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "long" });
}
