/**
 * Open a trace in Perfetto, in another tab. Perfetto does not queue early messages, so it gets PING until it
 * answers PONG. It answers any page: the sender of the answer is checked, and each message names Perfetto's
 * origin, so that no other page receives it.
 */
const PING_INTERVAL_MS = 100;
const SLOW_THRESHOLD_MS = 15_000;

type ShowMessage = (sentence: string) => void;

/** A trace to open: its `name` in messages, its `title` and `fileName` in Perfetto, and its content. */
export interface OpenedTrace {
  name: string;
  title: string;
  fileName: string;
  read: () => Promise<ArrayBuffer>;
}

export async function openInPerfetto(trace: OpenedTrace, perfettoUrl: string, showMessage: ShowMessage): Promise<void> {
  const tab = window.open(perfettoUrl);
  if (tab === null)
    return showMessage("The browser has blocked the new tab. Allow pop-ups for this page, and click again.");
  const origin = new URL(perfettoUrl).origin;
  const { name, title, fileName } = trace;
  showMessage(`Reading ${name} ...`);
  try {
    const [buffer] = await Promise.all([trace.read(), waitForAnswer(tab, perfettoUrl, showMessage)]);
    tab.postMessage({ perfetto: { buffer, title, fileName } }, origin, [buffer]);
    showMessage(`${name} is open in the tab of ${origin}.`);
  } catch (error) {
    showMessage(error instanceof Error ? error.message : String(error));
  }
}

/** Resolve when the page in the tab is ready. */
function waitForAnswer(tab: Window, perfettoUrl: string, showMessage: ShowMessage): Promise<void> {
  const origin = new URL(perfettoUrl).origin;
  const slow = window.setTimeout(() => {
    showMessage(
      `${perfettoUrl} has not answered yet. If it cannot be reached from here, close its tab, and start ` +
        '"kinetoscope view" with --perfetto-url and the address of a Perfetto that can.',
    );
  }, SLOW_THRESHOLD_MS);
  let timer = 0;
  let listen: (event: MessageEvent) => void;
  const answered = new Promise<void>((resolve, reject) => {
    listen = (event) => {
      if (event.source === tab && event.origin === origin && event.data === "PONG") resolve();
    };
    const ping = () => {
      if (tab.closed) return reject(new Error(`The tab of ${origin} was closed before its page was ready.`));
      tab.postMessage("PING", origin);
    };
    window.addEventListener("message", listen);
    timer = window.setInterval(ping, PING_INTERVAL_MS);
  });
  return answered.finally(() => {
    window.clearInterval(timer);
    window.clearTimeout(slow);
    window.removeEventListener("message", listen);
  });
}
