/** Refresh the data while the page is visible. */
import { useEffect, useState } from "preact/hooks";
import type { ListData } from "./list_data";

const RUN_REMOVED = "This run is no longer in the folder. This is its last state.";
const NO_ANSWER = '"kinetoscope view" does not answer: it may have ended. What is shown is as it was when it last did.';

/**
 * The data of the page. It is requested again while the tab is visible, and not any more when the run has ended; a
 * tab that becomes visible requests it once.
 */
export function useRefreshed(first: ListData): { data: ListData; problem: string } {
  const [data, setData] = useState(first);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let [timer, refreshMs, shown] = [0, first.refresh_ms, ""];
    const schedule = () => {
      clearTimeout(timer);
      if (refreshMs && !document.hidden) timer = window.setTimeout(refresh, refreshMs);
    };
    const refresh = async () => {
      clearTimeout(timer);
      try {
        const answer = await fetch(`/data${location.pathname}`);
        const text = await answer.text();
        setProblem(answer.ok ? "" : RUN_REMOVED);
        if (answer.ok && text !== shown) {
          const next = JSON.parse(text) as ListData;
          [shown, refreshMs] = [text, next.refresh_ms];
          setData(next);
        }
      } catch {
        setProblem(NO_ANSWER);
      }
      schedule();
    };
    const onVisibility = () => (document.hidden ? clearTimeout(timer) : void refresh());
    schedule();
    document.addEventListener("visibilitychange", onVisibility);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibility);
    };
  }, []);
  return { data, problem };
}
