/** What the colours of a picture mean, and the numbers of the part that is pointed at. */
import { formatDuration, formatShare } from "../format";
import { lengthOf, type StackPart } from "./stack";

export function Legend({ title, parts, noun }: { title: string; parts: StackPart[]; noun: string }) {
  const whole = lengthOf(parts);
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
              <span class="swatch" style={{ background: part.colour }} />
              {part.name}
            </th>
            <td class="number">{formatDuration(part.value)}</td>
            <td class="number">{formatShare(part.value / whole)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
