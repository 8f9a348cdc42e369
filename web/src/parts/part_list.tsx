import type { ComponentChildren } from "preact";
import { formatDuration, formatShare } from "../format";
import type { StackPart } from "./stack";
import { Swatch } from "./swatch";
import { Term } from "./term";

/** The parts of a bar with their times and shares; `children` are further items. */
export function PartList({ parts, children }: { parts: StackPart[]; children?: ComponentChildren }) {
  return (
    <ul class="part-list">
      {parts.map(({ name, value, share, colour }) => (
        <li key={name}>
          <Swatch colour={colour} />
          <Term>{name}</Term> <strong>{formatDuration(value)}</strong> <span class="quiet">{formatShare(share)}</span>
        </li>
      ))}
      {children}
    </ul>
  );
}
