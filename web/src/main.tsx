import { render } from "preact";
import { App } from "./app";
import { followLinks } from "./link";
import { readPayload } from "./payload";
import "./style.css";
import { restoreTheme } from "./theme";

async function start(): Promise<void> {
  const root = document.getElementById("app") as HTMLElement;
  const data = document.getElementById("page-data") as HTMLElement;
  restoreTheme();
  try {
    const payload = await readPayload(data.textContent ?? "");
    data.remove();
    followLinks();
    render(<App payload={payload} />, root);
  } catch (error) {
    root.textContent = `This report cannot be shown: its file is damaged, or this browser is older than 2023. (${error})`;
    root.setAttribute("role", "alert");
  }
}

start();
