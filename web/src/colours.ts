/** Meanings of colours. A label or a pattern always repeats the meaning. */

export type ColourNumber = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9;

export const PHASE_COLOURS = {
  data: 2,
  forward: 1,
  backward: 3,
  optimizer: 4,
  sync: 9,
  communication: 6,
  between: 5,
  evaluation: 7,
  other: 8,
} as const satisfies Record<string, ColourNumber>;

export const DEVICE_COLOURS = {
  compute: 1,
  communication: 6,
  copy: 5,
} as const satisfies Record<string, ColourNumber>;

export const KERNEL_KIND_COLOURS: Record<string, ColourNumber> = DEVICE_COLOURS;

/** The n-th colour; colours repeat after eight. */
export function nthColour(at: number): ColourNumber {
  return ((at % 8) + 1) as ColourNumber;
}

/** A CSS value of a colour. */
export function cssColour(number: ColourNumber): string {
  return `var(--colour-${number})`;
}

/** Value of a CSS variable in the current theme, for canvases. */
export function canvasColour(variable: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(--${variable})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
