/** Which colour means what. The variables are in style.css; a colour never stands alone, a label or pattern says it too. */

/** The parts of a step, in the order in which they are stacked. */
export const PHASE_COLOURS = {
  data: "--colour-2",
  forward: "--colour-1",
  backward: "--colour-3",
  optimizer: "--colour-4",
  sync: "--colour-9",
  communication: "--colour-6",
  python: "--colour-8",
  evaluation: "--colour-7",
  between: "--colour-5",
};

export type Phase = keyof typeof PHASE_COLOURS;

export const DEVICE_COLOURS = {
  compute: "--colour-1",
  communication: "--colour-6",
  copy: "--colour-4",
  idle: "--line",
};

export type DeviceUse = keyof typeof DEVICE_COLOURS;

/** A colour of style.css as text that a canvas takes, in the present theme. */
export function canvasColour(variable: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
