/** The colour of a part, beside its name. */
export function Swatch({ colour }: { colour: string }) {
  return <span class="swatch" style={{ background: colour }} aria-hidden="true" />;
}
