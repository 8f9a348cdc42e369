const MAX_CHARACTERS = 200;

/**
 * A name from a trace as plain text, with an isolated writing direction. A long one is shortened in the middle,
 * since similar names often differ at the end.
 */
export function Name({ text, maxLength = MAX_CHARACTERS }: { text: string; maxLength?: number }) {
  if (text.length <= maxLength) return <bdi>{text}</bdi>;
  return (
    <span title={text.slice(0, 2000)}>
      <bdi>{cutInMiddle(text, maxLength)}</bdi>
      {` (${text.length} characters)`}
    </span>
  );
}

const MAX_LINE_LENGTH = 52;

/** A name, or its `short` form, on one line; the title has the whole name. */
export function OneLine({ name, short = name }: { name: string; short?: string }) {
  return (
    <bdi title={name.slice(0, 2000)} class="one-line">
      {cutInMiddle(short, MAX_LINE_LENGTH)}
    </bdi>
  );
}

/** A text shortened in the middle. */
export function cutInMiddle(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const end = Math.floor((maxLength - 1) / 2);
  return `${whole(text.slice(0, maxLength - 1 - end), true)}…${whole(text.slice(text.length - end), false)}`;
}

/** Remove half of a surrogate pair at the cut. */
function whole(text: string, isBegin: boolean): string {
  return isBegin ? text.replace(/[\ud800-\udbff]$/, "") : text.replace(/^[\udc00-\udfff]/, "");
}
