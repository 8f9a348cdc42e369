/** Refresh the data while the page is visible. */
import { useEffect, useState } from "preact/hooks";
import type { ListData } from "./list_data";

const RUN_REMOVED = "This run is no longer in the folder. What is shown is as it was.";
const NO_ANSWER = '"kinetoscope view" does not answer: it may have ended. What is shown is as it was when it last did.';

export function useRefreshed(first: ListData): { data: ListData; problem: string } {
  const [data, setData] = useState(first);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let [timer, refreshMs, shown] = [0, first.refresh_ms, ""];
    const refresh = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
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
      }
      timer = window.setTimeout(refresh, refreshMs);
    };
    const onVisible = () => void (document.hidden || refresh());
    timer = window.setTimeout(refresh, refreshMs);
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, []);
  return { data, problem };
}
