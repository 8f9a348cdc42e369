import { render } from "preact";
import "../style.css";
import { restoreTheme } from "../theme";
import type { ListData } from "./list_data";
import { RunsApp } from "./runs_app";
import "./runs.css";

const data = document.getElementById("list-data") as HTMLElement;
restoreTheme();
render(
  <RunsApp first={JSON.parse(data.textContent ?? "") as ListData} />,
  document.getElementById("app") as HTMLElement,
);
