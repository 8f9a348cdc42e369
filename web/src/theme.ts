/** Theme of the page: that of the system, until the reader switches. */
import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";

const STORAGE_KEY = "kinetoscope-theme";
const CHANGE_EVENT = "kinetoscope-theme-changed";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

export function currentTheme(): Theme {
  return (document.documentElement.dataset.theme as Theme) || (systemIsDark.matches ? "dark" : "light");
}

/** Apply the stored theme. */
export function restoreTheme(): void {
  const kept = tryStorage(() => localStorage.getItem(STORAGE_KEY));
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}

export function switchTheme(): void {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  tryStorage(() => localStorage.setItem(STORAGE_KEY, theme));
  dispatchEvent(new Event(CHANGE_EVENT));
}

/** The current theme; the component is rendered again when it changes, and canvases read their colours again. */
export function useTheme(): Theme {
  const [theme, setTheme] = useState(currentTheme);
  useEffect(() => {
    const update = () => setTheme(currentTheme());
    addEventListener(CHANGE_EVENT, update);
    systemIsDark.addEventListener("change", update);
    return () => {
      removeEventListener(CHANGE_EVENT, update);
      systemIsDark.removeEventListener("change", update);
    };
  }, []);
  return theme;
}

/** Access the storage, which raises in sandboxed frames, and in some browsers for files. */
function tryStorage<Value>(use: () => Value): Value | null {
  try {
    return use();
  } catch {
    return null;
  }
}
