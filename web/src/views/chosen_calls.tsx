import { useState } from "preact/hooks";
import { navigate } from "../link";
import type { ViewProps } from "../view";

/** Action of a click on a row of calls: a search in the timeline, or the row in full without one. */
export function useChosen<Row extends { name: string }>({
  payload,
}: Pick<ViewProps, "payload">): {
  chosen: Row | null;
  choose: (row: Row | null) => void;
} {
  const [chosen, setChosen] = useState<Row | null>(null);
  const choose = (row: Row | null) => {
    if (row && payload.page.timeline) navigate({ view: "timeline", q: row.name, span: "longest" });
    else setChosen(row);
  };
  return { chosen, choose };
}

interface ChosenProps {
  name: string;
  facts: [string, string][];
  onClose: () => void;
}

/** One row in full, with its whole name. */
export function Chosen({ name, facts, onClose }: ChosenProps) {
  return (
    <section class="chosen" aria-label="The chosen row">
      <p class="chosen-name">
        <bdi>{name}</bdi>
      </p>
      <dl>
        {facts.map(([title, text]) => (
          <div key={title}>
            <dt>{title}</dt>
            <dd>
              <bdi>{text}</bdi>
            </dd>
          </div>
        ))}
      </dl>
      <p class="quiet">This report has no timeline. Without --no-timeline, a click shows the calls in it.</p>
      <button type="button" onClick={onClose}>
        Close
      </button>
    </section>
  );
}
