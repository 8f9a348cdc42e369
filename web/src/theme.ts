/** Light or dark: as the system is, until the reader switches. */
import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";

const KEPT_AS = "kinetoscope-theme";
const CHANGED = "kinetoscope-theme-changed";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

export function presentTheme(): Theme {
  return (document.documentElement.dataset.theme as Theme) || (systemIsDark.matches ? "dark" : "light");
}

/** Shows the theme that the reader chose in an earlier visit. */
export function restoreTheme(): void {
  const kept = reading(() => localStorage.getItem(KEPT_AS));
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}

export function switchTheme(): void {
  const theme = presentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  reading(() => localStorage.setItem(KEPT_AS, theme));
  dispatchEvent(new Event(CHANGED));
}

/** The present theme; the component is drawn again when it changes. A canvas asks for its colours anew then. */
export function useTheme(): Theme {
  const [theme, setTheme] = useState(presentTheme);
  useEffect(() => {
    const update = () => setTheme(presentTheme());
    addEventListener(CHANGED, update);
    systemIsDark.addEventListener("change", update);
    return () => {
      removeEventListener(CHANGED, update);
      systemIsDark.removeEventListener("change", update);
    };
  }, []);
  return theme;
}

/** Storage raises in a sandboxed frame, and in some browsers for files; the page works without it. */
function reading<Value>(use: () => Value): Value | null {
  try {
    return use();
  } catch {
    return null;
  }
}
