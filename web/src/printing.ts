/** Printing: all views with content are rendered before the browser takes its snapshot. */
import { useEffect, useState } from "preact/hooks";

const PRINT_EVENT = "kinetoscope-print";
const isPrint = matchMedia("print");

/** True while the page is printed or about to be. */
export function usePrinting(): boolean {
  const [isPrinting, setIsPrinting] = useState(isPrint.matches);
  useEffect(() => {
    const begin = () => setIsPrinting(true);
    const end = () => setIsPrinting(false);
    const change = () => setIsPrinting(isPrint.matches);
    const onKey = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "p" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey)
        return;
      event.preventDefault();
      printAll();
    };
    const listeners = { [PRINT_EVENT]: begin, beforeprint: begin, afterprint: end, keydown: onKey as EventListener };
    for (const [kind, listener] of Object.entries(listeners)) addEventListener(kind, listener);
    isPrint.addEventListener("change", change);
    return () => {
      for (const [kind, listener] of Object.entries(listeners)) removeEventListener(kind, listener);
      isPrint.removeEventListener("change", change);
    };
  }, []);
  return isPrinting;
}

const DRAW_DELAY_MS = 500;

/** Render all views, then print. Canvases need a frame or two, and `beforeprint` does not wait for them. */
export function printAll(): void {
  dispatchEvent(new Event(PRINT_EVENT));
  setTimeout(() => print(), DRAW_DELAY_MS);
}
