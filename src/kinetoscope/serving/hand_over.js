// Gives a trace to Perfetto's page, which is opened in another tab, when the user has clicked on the button that says so.
// The other page does not keep messages that come too early, so it is sent PING until it answers PONG. It answers
// anybody, so we look who has answered; and we name the origin in all that we send, so that nobody else can get it.
"use strict";

const perfettoUrl = document.body.dataset.perfetto;
const perfettoOrigin = new URL(perfettoUrl).origin;
const status = document.getElementById("status");
const PING_EVERY_MS = 100;
const SLOW_AFTER_MS = 15000;

function say(sentence) {
  status.textContent = sentence;
}

// Resolves when the page in the tab is ready.
function answer(tab) {
  const asked = Date.now();
  let timer, listen;
  const answered = new Promise((resolve, reject) => {
    listen = (event) => {
      if (event.source === tab && event.origin === perfettoOrigin && event.data === "PONG") resolve();
    };
    const ping = () => {
      if (tab.closed) return reject(new Error(`The tab of ${perfettoOrigin} was closed before its page was ready.`));
      if (Date.now() - asked > SLOW_AFTER_MS) {
        say(`${perfettoUrl} has not answered yet. If it cannot be reached from here, close its tab, and start
          "kinetoscope view" with --perfetto-url and the address of a Perfetto that can.`);
      }
      tab.postMessage("PING", perfettoOrigin);
    };
    window.addEventListener("message", listen);
    timer = window.setInterval(ping, PING_EVERY_MS);
  });
  return answered.finally(() => {
    window.clearInterval(timer);
    window.removeEventListener("message", listen);
  });
}

async function content(button) {
  let response;
  try {
    response = await fetch(button.dataset.trace);
    if (response.ok) return await response.arrayBuffer();
  } catch (error) {
    throw new Error(`The trace could not be read (${error.message}). Does "kinetoscope view" still run? A page cannot
      hold a trace of several GB: "kinetoscope merge" with --ranks or --last makes a smaller one.`);
  }
  throw new Error(`The trace could not be read: the server answered ${response.status}. Load this page again.`);
}

async function handOver(button) {
  const tab = window.open(perfettoUrl);
  if (tab === null) return say("The browser has blocked the new tab. Allow pop-ups for this page, and click again.");
  const { title, file } = button.dataset;
  say(`Reading ${file} ...`);
  try {
    const [buffer] = await Promise.all([content(button), answer(tab)]);
    tab.postMessage({ perfetto: { buffer, title, fileName: file } }, perfettoOrigin, [buffer]);
    say(`${file} is open in the tab of ${perfettoOrigin}.`);
  } catch (error) {
    say(error.message);
  }
}

for (const button of document.querySelectorAll("button[data-trace]")) {
  button.hidden = false;
  button.addEventListener("click", () => handOver(button));
}
