import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { meaningOf } from "../terms";
import { Name } from "./name";
import "./term.css";

/** A term with an explanation on hover and focus; other texts are unmodified. */
export function Term({ children: word }: { children: string }) {
  const meaning = meaningOf(word);
  return meaning === null ? <Name text={word} /> : <Explained word={word} meaning={meaning} />;
}

const WIDTH = 300;
const GAP = 4;

interface ExplainedProps {
  word: string;
  meaning: string;
  class?: string;
  onClick?: () => void;
  /** Content after the word. */
  children?: ComponentChildren;
}

/** A button whose meaning is shown on hover, focus and click. */
export function Explained({ word, meaning, class: name = "", onClick, children }: ExplainedProps) {
  const [isOpen, setIsOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  useEffect(() => {
    if (!isOpen) return;
    const close = () => setIsOpen(false);
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && close();
    addEventListener("keydown", onKey);
    addEventListener("scroll", close, true);
    return () => {
      removeEventListener("keydown", onKey);
      removeEventListener("scroll", close, true);
    };
  }, [isOpen]);
  const box = isOpen ? button.current?.getBoundingClientRect() : undefined;
  return (
    <span class={`term ${name}`} onMouseEnter={() => setIsOpen(true)} onMouseLeave={() => setIsOpen(false)}>
      <button
        type="button"
        ref={button}
        aria-describedby={isOpen ? id : undefined}
        onFocus={() => setIsOpen(true)}
        onBlur={() => setIsOpen(false)}
        onClick={() => {
          setIsOpen(true);
          onClick?.();
        }}
      >
        {word}
        {children}
      </button>
      {box && (
        <span
          role="tooltip"
          id={id}
          style={{
            top: `${box.bottom + GAP}px`,
            left: `${Math.max(GAP, Math.min(box.left, innerWidth - WIDTH - GAP))}px`,
            maxWidth: `${WIDTH}px`,
          }}
        >
          {meaning}
        </span>
      )}
    </span>
  );
}
