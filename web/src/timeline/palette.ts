import { canvasColour, PHASE_COLOURS, type ColourNumber } from "../colours";
import type { TimelineData } from "./data";
import type { SpanColours } from "./pixel_row";
import type { Matches } from "./search";

type Rgb = [red: number, green: number, blue: number];

/** Colours of the timeline in the current theme. */
export interface Palette extends SpanColours {
  ground: string;
  panel: string;
  line: string;
  text: string;
  quiet: string;
  accent: string;
  bad: string;
  /** For each text, the pixel colour of spans with that name. */
  names: Uint32Array;
  /** For each text, the label on such a span. */
  inks: string[];
}

const BLACK = "#14181f";
const WHITE = "#ffffff";
const LIGHT = [0.3, 0.5, 0.65];
const PHASES: [RegExp, ColourNumber][] = [
  [/nccl|gloo|all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all|c10d/i, PHASE_COLOURS.communication],
  [/dataloader|event\/(wait_)?data|next_?batch|_next_data/i, PHASE_COLOURS.data],
  [/backward|autograd::/i, PHASE_COLOURS.backward],
  [/optimizer|zero_grad/i, PHASE_COLOURS.optimizer],
  [/eval/i, PHASE_COLOURS.evaluation],
  [/forward/i, PHASE_COLOURS.forward],
];
const MODULE = "module";
const PLAIN = /python_function|cuda_runtime|cuda_driver|overhead/;
const STEP = /^(step |ProfilerStep#)\d+$/;
const HUES: ColourNumber[] = [1, 3, 4, 5]; // the others resemble data and communication, or white

/** Colours in the current theme. */
export function readPalette(data: TimelineData): Palette {
  const plain = ["ground", "panel", "line", "text", "quiet", "accent", "bad"].map(canvasColour);
  const [ground, panel, line, text, quiet, accent, bad] = plain;
  const colours = Array.from({ length: 9 }, (_, at) => rgbOf(at ? canvasColour(`colour-${at}`) : text));
  const categories = categoriesOfNames(data);
  const rgbs = data.texts.map((name, at) => {
    const { colour, light } = colourOfName(name, data.texts[categories[at]] ?? "");
    return mixed(colours[colour], rgbOf(ground), light);
  });
  const names = Uint32Array.from(rgbs, pixelOf);
  const grey = pixelOf(rgbOf(line));
  return { ground, panel, line, text, quiet, accent, bad, names, grey, shown: null, inks: rgbs.map(inkOn) };
}

/** The same colours, with grey for spans that do not match, or are not `shown`. */
export function filteredPalette(palette: Palette, matches: Matches | null, shown: Uint8Array | null): Palette {
  if (!matches) return { ...palette, shown };
  return {
    ...palette,
    shown,
    names: palette.names.map((colour, at) => (matches.texts[at] ? colour : palette.grey)),
    inks: palette.inks.map((ink, at) => (matches.texts[at] ? ink : palette.text)),
  };
}

/**
 * The colour of a name: that of its phase, or a paler one by a hash of its letters; `light` is its share of the background.
 * Modules that differ in numbers, such as those of repeated blocks, have one colour.
 */
export function colourOfName(name: string, category: string): { colour: ColourNumber; light: number } {
  if (category === MODULE) return hashedColour(name.replace(/\d+/g, "#"));
  const hash = hashOf(name);
  if (STEP.test(name)) return { colour: PHASE_COLOURS.other, light: LIGHT[2] };
  if (PLAIN.test(category)) return { colour: PHASE_COLOURS.other, light: hash % 2 ? LIGHT[1] : 0 };
  const phase = PHASES.find(([pattern]) => pattern.test(name));
  if (phase) return { colour: phase[1], light: 0 };
  return hashedColour(name);
}

function hashedColour(name: string): { colour: ColourNumber; light: number } {
  const hash = hashOf(name);
  return { colour: HUES[hash % HUES.length], light: LIGHT[(hash >>> 8) % LIGHT.length] };
}

function categoriesOfNames({ columns: { names, categories }, texts }: TimelineData): Uint32Array {
  const found = new Uint32Array(texts.length).fill(texts.length);
  for (let span = 0; span < names.length; span++) found[names[span]] = categories[span];
  return found;
}

function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < Math.min(text.length, 200); at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return (hash ^ (hash >>> 15)) >>> 0;
}

function rgbOf(colour: string): Rgb {
  const [red = 0, green = 0, blue = 0] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  return [red, green, blue];
}

function mixed(one: Rgb, other: Rgb, share: number): Rgb {
  return one.map((value, at) => Math.round(value + (other[at] - value) * share)) as Rgb;
}

function pixelOf([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Black or white, the more readable one. */
function inkOn(rgb: Rgb): string {
  const [red, green, blue] = rgb.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? BLACK : WHITE;
}
