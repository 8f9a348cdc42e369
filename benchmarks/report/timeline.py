"""Timeline of a report with a million spans on 64 tracks, in Chromium without a screen or a GPU.

The pages of a large trace and of 64 ranks are measured too.

A frame is the work of the page's thread for one turn of the wheel: its handler, drawing, layout and painting. For
comparison, a canvas of the same size in the same page gets one `fillRect` for each span that is in view.
"""

import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.files.traces import write_large_trace
from benchmarks.from_tests import launch_chromium, simulation
from benchmarks.suite import Measure, SuiteResult

_NUM_SPANS, _QUICK_SPANS = 1_000_000, 50_000
_TRACE_BYTES, _QUICK_BYTES = 250_000_000, 10_000_000
_NUM_RANKS, _QUICK_RANKS = 64, 4
_AREA_SPANS = 10_000
_SIZE = {"width": 1600, "height": 800}
_SEARCH_TEXTS = ["o", "operator_12", "operator_1 float", "long"]
_TIMEOUT_S = 600

# When the timeline is drawn for the first time, in milliseconds after the page was asked for.
_WATCH = """
new MutationObserver((_, observer) => {
  if (!document.querySelector(".timeline-content canvas")) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => (window.interactive = performance.now()))));
}).observe(document, { childList: true, subtree: true });
"""
# How long the page's thread works on a frame in which something is done, in milliseconds.
_MEASURE = """
window.measureFrame = (deed) => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  let begin = 0;
  port1.onmessage = () => resolve(performance.now() - begin + handled);
  requestAnimationFrame(() => { begin = performance.now(); port2.postMessage(0); });
  const called = performance.now();
  deed();
  const handled = performance.now() - called;
});
"""
_MOVE = """
async (turns) => {
  const canvas = document.querySelector(".timeline-content canvas");
  const { left, top, width } = canvas.getBoundingClientRect();
  const frames = [];
  for (const [deltaX, deltaY] of turns) {
    const at = { clientX: left + width * 0.6, clientY: top + 200, bubbles: true, cancelable: true };
    frames.push(await measureFrame(() => canvas.dispatchEvent(new WheelEvent("wheel", { deltaX, deltaY, ...at }))));
  }
  return frames;
}
"""
_FILL = """
async ([count, rounds]) => {
  const canvas = document.createElement("canvas");
  const like = document.querySelector(".timeline-content canvas");
  [canvas.width, canvas.height] = [like.width, like.height];
  canvas.style.position = "fixed";
  document.body.append(canvas);
  const context = canvas.getContext("2d", { alpha: false });
  const places = Float64Array.from({ length: count }, () => Math.random());
  const colours = ["#0072b2", "#e69f00", "#009e73", "#cc79a7"];
  const fill = () => {
    for (let at = 0; at < count; at++) {
      context.fillStyle = colours[at & 3];
      context.fillRect(places[at] * canvas.width, (at % 30) * 18, Math.max(1, (30 * canvas.width) / count), 16);
    }
  };
  const frames = [];
  for (let round = 0; round < rounds; round++) frames.push(await measureFrame(fill));
  canvas.remove();
  return frames;
}
"""
_SEARCH = """
async (texts) => {
  const input = document.querySelector("input[type=search]");
  const frames = [];
  for (const text of texts) {
    frames.push(await measureFrame(() => {
      input.value = text;
      input.dispatchEvent(new InputEvent("input", { bubbles: true }));
    }));
    frames.push(await measureFrame(() => {
      input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    }));
  }
  return frames;
}
"""
# From the end of a drag until the table of what is in it is painted, in milliseconds, and its title.
_AFTER_DRAG = """
() => {
  window.measured = new Promise((resolve) => {
    addEventListener("pointerup", () => {
      const began = performance.now();
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        const panel = document.querySelector("[aria-label='Measured range']");
        resolve([performance.now() - began, panel.innerText]);
      };
      requestAnimationFrame(() => port2.postMessage(0));
    }, { capture: true, once: true });
  });
}
"""
_WRITE = """
import json, sys, time
import polars
import kinetoscope, kinetoscope.analysis.analyze
from kinetoscope.pages.html_file import render_page
from kinetoscope.report.page.build import RecordedWindows, build_page
from kinetoscope.report.page.rank_traces import RankTraces

def memory(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

trace = kinetoscope.load(sys.argv[1], cache=False)
report = kinetoscope.analyze(trace)
open("/proc/self/clear_refs", "w").write("5")
before, begin = memory("VmRSS"), time.process_time()
windows = RankTraces(report, [trace], cache=False)
page = build_page(report, "0", recorded=RecordedWindows(windows=windows))
text = render_page(page)
print(json.dumps([time.process_time() - begin, memory("VmHWM") - before, len(page.timeline.spans.begins)]))
open(sys.argv[2], "w", encoding="utf-8").write(text)
"""


def run(*, quick: bool) -> SuiteResult:
    """Write both pages, and open the one with a million spans."""
    from benchmarks.report.spans import make_page_data
    from kinetoscope.pages.html_file import render_page

    num_spans = _QUICK_SPANS if quick else _NUM_SPANS
    with tempfile.TemporaryDirectory(prefix="report-") as name:
        folder = Path(name)
        page = folder / "page.html"
        page.write_text(render_page(make_page_data(num_spans)))
        written = _write(folder, folder / "large.html", _QUICK_BYTES if quick else _TRACE_BYTES)
        _write_ranks(folder, folder / "ranks.html", _QUICK_RANKS if quick else _NUM_RANKS)
        seen = _measure_in_chromium(page, 20 if quick else 120)
        seen |= {"bytes": page.stat().st_size, "shell": _measure_shell_bytes(), "written": written}
        seen["pages"] = {name: (folder / f"{name}.html").stat().st_size for name in ("large", "ranks")}
    return _make_result(seen, num_spans)


def _measure_in_chromium(page: Path, num_turns: int) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        tab = browser.new_context(viewport=_SIZE, offline=True).new_page()  # type: ignore[arg-type]
        tab.add_init_script(_WATCH + _MEASURE)
        opened = {
            name: min(_open_page(tab, page.with_name(f"{name}.html")) for _ in range(3)) for name in ("large", "ranks")
        }
        interactive = [_open_page(tab, page) for _ in range(3)]
        tab.get_by_role("button", name="Open all ranks").click()
        heap = _read_heap_bytes(tab)
        in_view = _count_spans_in_view(tab)
        result = {
            "opened": opened,
            "interactive": interactive,
            "area": min(_measure_area(tab) for _ in range(5)),
            "heap": heap,
            "in_view": in_view,
            "frames": min(
                (sorted(tab.evaluate(_MOVE, _make_wheel_turns(num_turns))) for _ in range(3)), key=_percentile_95
            ),
            "naive": tab.evaluate(_FILL, [in_view, 5]),
            "search": min(max(tab.evaluate(_SEARCH, _SEARCH_TEXTS)) for _ in range(3)),
        }
        browser.close()
        return result


def _open_page(tab: Any, page: Path) -> float:
    tab.goto("about:blank")
    tab.goto(page.as_uri() + "#view=timeline")
    tab.wait_for_function("() => window.interactive")  # a function, since the page forbids eval
    return tab.evaluate("window.interactive")


def _read_heap_bytes(tab: Any) -> float:
    session = tab.context.new_cdp_session(tab)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")
    return used["usedSize"] + used.get("backingStorageSize", 0)


def _count_spans_in_view(tab: Any) -> int:
    """Return the number of spans in view, from the page's table."""
    tab.keyboard.press("t")
    text = tab.get_by_role("region", name="Spans in view").first.inner_text()
    tab.keyboard.press("t")
    tab.wait_for_selector(".timeline-panel", state="detached")
    return int(text.split(" spans in view")[0].split(" of ")[-1].replace(",", ""))


def _measure_area(tab: Any) -> tuple[float, int]:
    """Return the time from a drag to the table of an area with at least so many spans, and their number."""
    ruler = tab.locator(".timeline-ruler canvas").bounding_box()
    width = 8.0
    while True:
        tab.mouse.move(ruler["x"] + 300, ruler["y"] + 5)
        tab.mouse.down()
        tab.mouse.move(ruler["x"] + 306, ruler["y"] + 5)
        tab.get_by_role("region", name="Measured range", exact=True).wait_for()
        tab.evaluate(_AFTER_DRAG)
        tab.mouse.move(ruler["x"] + 300 + width, ruler["y"] + 5)
        tab.mouse.up()
        time_ms, text = tab.evaluate("() => window.measured")
        tab.keyboard.press("Escape")
        (number,) = re.findall(r": (?:at least )?([\d,]+) spans", text)
        num_spans = int(number.replace(",", ""))
        if num_spans >= _AREA_SPANS:
            return time_ms, num_spans
        width *= 1.1


def _make_wheel_turns(number: int) -> list[tuple[int, int]]:
    """Return the times of the wheel: pans at several depths of zoom, and zooms in and out again."""
    depths = [*[(0, -300)] * 4, *[(0, 300)] * 4]
    turns = [turn for depth in depths for turn in (depth, *[(40, 0), (-60, 0)] * 2)]
    return (turns * (number // len(turns) + 1))[:number]


def _percentile_95(frames: list[float]) -> float:
    """Return the 95th percentile of sorted times."""
    return frames[int(len(frames) * 0.95)]


def _measure_shell_bytes() -> int:
    return len(gzip.compress(files("kinetoscope.pages").joinpath("page.html").read_bytes(), 9))


def _write_ranks(folder: Path, page: Path, num_ranks: int) -> None:
    """Write the report on simulated ranks, as the command does."""
    simulated = simulation()
    simulated.simulate(simulated.Settings(num_ranks=num_ranks)).write(folder / "ranks")
    command = [sys.executable, "-m", "kinetoscope", "report", "--no-cache", str(folder / "ranks"), "-o", str(page)]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S, stdout=subprocess.DEVNULL)


def _write(folder: Path, page: Path, num_bytes: int) -> dict[str, float]:
    trace = write_large_trace(folder / "large.pt.trace.json", num_bytes)
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-c", _WRITE, str(trace), str(page)]
    done = subprocess.run(command, env=environment, check=True, timeout=_TIMEOUT_S, stdout=subprocess.PIPE, text=True)
    return dict(zip(("seconds", "bytes", "spans"), json.loads(done.stdout), strict=True))


def _make_result(seen: dict[str, Any], num_spans: int) -> SuiteResult:
    frames = seen["frames"]
    median = statistics.median(frames)
    naive = statistics.median(seen["naive"])
    written = seen["written"]
    area_ms, in_area = seen["area"]
    measures = [
        Measure("page of the spans", seen["bytes"] / 1e6, "MB"),
        Measure("page without data, compressed", seen["shell"] / 1e3, "kB"),
        Measure("interactive after opening", min(seen["interactive"]) / 1e3, "s", "the best of 3"),
        Measure("frame while zooming and panning, median", median, "ms", f"of {len(frames)} frames"),
        Measure("frame while zooming and panning, 95 %", _percentile_95(frames), "ms", "the best of 3 rounds"),
        Measure("fillRect for each span / a frame", naive / median, "x", f"{seen['in_view']:,} in view"),
        Measure(
            "table of an area of 10,000 spans", area_ms, "ms", f"until it is painted; {in_area:,} spans, best of 5"
        ),
        Measure("search", seen["search"], "ms", "the slowest of 8, best of 3 rounds"),
        Measure("heap", seen["heap"] / 1e6, "MB"),
        Measure("page written after loading", written["seconds"], "s", f"of processors, {written['spans']:,} spans"),
        Measure("page written after loading: memory", written["bytes"] / 1e6, "MB"),
        Measure("page of a large trace", seen["pages"]["large"] / 1e6, "MB", f"of {written['spans']:,} spans"),
        Measure("page of a large trace: interactive", seen["opened"]["large"] / 1e3, "s", "the best of 3"),
        Measure("page of 64 ranks", seen["pages"]["ranks"] / 1e6, "MB"),
        Measure("page of 64 ranks: interactive", seen["opened"]["ranks"] / 1e3, "s", "the best of 3"),
    ]
    return SuiteResult(
        suite="report",
        title=f"the timeline of {num_spans:,} spans on 64 tracks, in Chromium, {_SIZE['width']}x{_SIZE['height']}",
        measures=measures,
        notes=[
            "Without a GPU. Frames are the time of the page's thread for one turn of the wheel.",
            "The large trace repeats a few steps, and so compresses better than most.",
        ],
        times_ns={
            "frame": {"best": round(frames[0] * 1e6), "median": round(median * 1e6)},
            "fillRect for each span": {"best": round(min(seen["naive"]) * 1e6), "median": round(naive * 1e6)},
        },
    )
