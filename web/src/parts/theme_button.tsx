import { switchTheme, useTheme } from "../theme";

export function ThemeButton() {
  const other = useTheme() === "dark" ? "light" : "dark";
  return (
    <button type="button" aria-label={`Switch to ${other} colours`} title={`${other} colours`} onClick={switchTheme}>
      <span aria-hidden="true">{other === "dark" ? "☾" : "☀"}</span>
    </button>
  );
}
