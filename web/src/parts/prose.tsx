import { Name } from "./name";

const MAX_CHARACTERS = 1000;

/** Sentences whose code is between backticks, as in a finding's advice. */
export function Prose({ text }: { text: string }) {
  const pieces = text.split("`");
  // An unpaired backtick is a plain character.
  const isPaired = pieces.length % 2 === 1;
  if (!isPaired) return <Name text={text} maxLength={MAX_CHARACTERS} />;
  return (
    <>
      {pieces.map((piece, index) =>
        index % 2 ? (
          <code key={index}>
            <Name text={piece} maxLength={MAX_CHARACTERS} />
          </code>
        ) : (
          <Name key={index} text={piece} maxLength={MAX_CHARACTERS} />
        ),
      )}
    </>
  );
}
