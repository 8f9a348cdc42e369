import { useState } from "preact/hooks";
import { readLink, updateLink } from "../link";

/** A choice that is stored in the link; the first option is the default, if there is no other. */
export function useLinkedChoice(
  linkName: string,
  options: string[],
  initial = options[0] ?? "",
): [string, (option: string) => void] {
  const linked = readLink()[linkName];
  const [chosen, setChosen] = useState(linked && options.includes(linked) ? linked : initial);
  const choose = (option: string) => {
    setChosen(option);
    updateLink({ [linkName]: option });
  };
  return [chosen, choose];
}

interface ChoiceProps {
  title: string;
  options: string[];
  /** Labels of options that are not their own. */
  labels?: Record<string, string>;
  chosen: string;
  onChoose: (option: string) => void;
}

export function Choice({ title, options, labels = {}, chosen, onChoose }: ChoiceProps) {
  return (
    <label>
      {title}{" "}
      <select value={chosen} onChange={(event) => onChoose(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option} value={option}>
            {labels[option] ?? option}
          </option>
        ))}
      </select>
    </label>
  );
}
