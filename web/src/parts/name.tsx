const MAX_CHARACTERS = 200;

/** A name from a trace: it stays text, and its direction of writing does not reach what is around it. A long one is cut in
 * its middle, since names that begin alike often differ at their ends. */
export function Name({ text, maxLength = MAX_CHARACTERS }: { text: string; maxLength?: number }) {
  if (text.length <= maxLength) return <bdi>{text}</bdi>;
  return (
    <span title={text.slice(0, 2000)}>
      <bdi>{cutInMiddle(text, maxLength)}</bdi>
      {` (${text.length} characters)`}
    </span>
  );
}

/** The begin and the end of a text, of about so many letters together. */
export function cutInMiddle(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const end = Math.floor((maxLength - 1) / 2);
  return `${whole(text.slice(0, maxLength - 1 - end), true)}…${whole(text.slice(text.length - end), false)}`;
}

/** Without half of a letter that takes two places, where the text was cut. */
function whole(text: string, isBegin: boolean): string {
  return isBegin ? text.replace(/[\ud800-\udbff]$/, "") : text.replace(/^[\udc00-\udfff]/, "");
}
