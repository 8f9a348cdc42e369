/** Legend of a picture, with the values of the selected part. */
import { formatDuration, formatShare } from "../format";
import type { StackPart } from "./stack";
import { Swatch } from "./swatch";
import { Term } from "./term";

interface LegendProps {
  title: string;
  noun: string;
  parts: StackPart[];
}

export function Legend({ title, noun, parts }: LegendProps) {
  return (
    <table class="part-legend">
      <caption>{title}</caption>
      <thead class="for-readers">
        <tr>
          <th>{noun}</th>
          <th>Time</th>
          <th>Share</th>
        </tr>
      </thead>
      <tbody>
        {parts.map((part) => (
          <tr key={part.name}>
            <th scope="row">
              <Swatch colour={part.colour} />
              <Term>{part.name}</Term>
            </th>
            <td class="number">{valueOf(part)}</td>
            <td class="number">{part.share == null ? "" : formatShare(part.share)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Without a selection, a colour may have no value. */
function valueOf({ value, isPhase }: StackPart): string {
  if (value !== null) return formatDuration(value);
  return isPhase ? "unknown" : "";
}
