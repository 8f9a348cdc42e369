import { useState } from "preact/hooks";
import { readLink, updateLink } from "../link";

/** A choice that is stored in the link; the first option is the default. */
export function useLinkedChoice(linkName: string, options: string[]): [string, (option: string) => void] {
  const linked = readLink()[linkName];
  const [chosen, setChosen] = useState(linked && options.includes(linked) ? linked : (options[0] ?? ""));
  const choose = (option: string) => {
    setChosen(option);
    updateLink({ [linkName]: option });
  };
  return [chosen, choose];
}

interface ChoiceProps {
  title: string;
  options: string[];
  chosen: string;
  onChoose: (option: string) => void;
}

export function Choice({ title, options, chosen, onChoose }: ChoiceProps) {
  return (
    <label>
      {title}{" "}
      <select value={chosen} onChange={(event) => onChoose(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option} value={option}>
            {option}
          </option>
        ))}
      </select>
    </label>
  );
}
