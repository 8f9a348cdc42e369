const MOST_CHARACTERS = 200;

/** A name from a trace: it stays text, and its direction of writing does not reach what is around it. */
export function Name({ text, most = MOST_CHARACTERS }: { text: string; most?: number }) {
  const characters = text.length > most ? [...text.slice(0, most)] : null;
  if (!characters) return <bdi>{text}</bdi>;
  return (
    <span title={text.slice(0, 2000)}>
      <bdi>{characters.join("")}</bdi>
      {`… (${text.length} characters)`}
    </span>
  );
}
