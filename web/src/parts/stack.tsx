/** Stacked bars, such as one per rank. Pointer and arrow keys select a bar, whose values are shown elsewhere. */
import { useRef, useState } from "preact/hooks";
import { counted } from "../format";
import "./stack.css";

/** A part of a bar; the legend has the parts in the same order. */
export interface StackPart {
  name: string;
  /** Null is unknown. */
  value: number | null;
  /** Share of the whole; null hides it. */
  share?: number | null;
  colour: string;
  /** Show the part if it is unknown. */
  isPhase?: boolean;
}

export interface StackBar {
  title: string;
  parts: StackPart[];
  /** A second, thinner bar. */
  below?: StackPart[];
  /** Total with its unit. */
  length: string;
  /** All values, for screen readers. */
  description: string;
}

interface StackProps {
  label: string;
  bars: StackBar[];
  shown: number | null;
  onShow: (at: number | null) => void;
  onChoose?: (at: number) => void;
  /** Number of bars to show at first; the others, each a `noun`, are folded. */
  numFirst?: number;
  noun?: string;
}

const STEPS: Record<string, number> = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
const DENSE_THRESHOLD = 16;

export function Stack({ label, bars: all, shown, onShow, onChoose, numFirst = all.length, noun = "bar" }: StackProps) {
  const [isOpen, setIsOpen] = useState(false);
  const bars = isOpen ? all : all.slice(0, numFirst);
  const longest = Math.max(1, ...all.flatMap((bar) => [lengthOf(bar.parts), lengthOf(bar.below ?? [])]));
  const list = useRef<HTMLUListElement>(null);
  const onKeyDown = (event: KeyboardEvent) => {
    if (!STEPS[event.key]) return;
    event.preventDefault();
    const at = Math.min(bars.length - 1, Math.max(0, (shown ?? 0) + STEPS[event.key]));
    list.current?.querySelectorAll("button")[at]?.focus();
  };
  return (
    <>
      <ul
        ref={list}
        class={bars.length > DENSE_THRESHOLD ? "stack dense" : "stack"}
        aria-label={label}
        onMouseLeave={() => onShow(null)}
      >
        {bars.map((bar, at) => (
          <li key={bar.title}>
            <button
              type="button"
              tabIndex={at === (shown ?? 0) ? 0 : -1}
              aria-label={bar.description}
              onKeyDown={onKeyDown}
              // Not on enter, which also fires when the layout changes under a resting pointer.
              onMouseMove={() => at !== shown && onShow(at)}
              onFocus={() => onShow(at)}
              onClick={() => onChoose?.(at)}
            >
              <span class="stack-title">{bar.title}</span>
              <span class="stack-bars">
                <Bar parts={bar.parts} longest={longest} />
                {bar.below && <Bar parts={bar.below} longest={longest} isThin />}
              </span>
              <span class="stack-length">{bar.length}</span>
            </button>
          </li>
        ))}
      </ul>
      {numFirst < all.length && (
        <button type="button" class="stack-fold" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
          {isOpen
            ? `Hide the ${counted(all.length - numFirst, `other ${noun}`)}`
            : `Show the ${counted(all.length - numFirst, `other ${noun}`)}`}
        </button>
      )}
    </>
  );
}

export function Bar({ parts, longest, isThin = false }: { parts: StackPart[]; longest: number; isThin?: boolean }) {
  return (
    <span class={isThin ? "stack-bar thin" : "stack-bar"}>
      {parts.map((part) =>
        (part.value ?? 0) > 0 ? (
          <span key={part.name} style={{ width: `${(100 * (part.value ?? 0)) / longest}%`, background: part.colour }} />
        ) : null,
      )}
    </span>
  );
}

/** The length of a bar. */
export function lengthOf(parts: StackPart[]): number {
  return parts.reduce((sum, part) => sum + (part.value ?? 0), 0);
}

const MAX_UNFOLDED = 8;
const MAX_UNUSUAL = 16;

/** The number of bars to show first: all if there are few, else the unusual ones and some more. */
export function numShownFirst(bars: { standsOut: boolean }[]): number {
  const standing = bars.filter(({ standsOut }) => standsOut).length;
  return bars.length <= MAX_UNFOLDED ? bars.length : Math.max(MAX_UNFOLDED / 2, Math.min(MAX_UNUSUAL, standing));
}
