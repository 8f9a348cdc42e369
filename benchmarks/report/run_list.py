"""The list of 300 runs of `kinetoscope view` in Chromium, and the cost of one more run."""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks.from_tests import launch_chromium
from benchmarks.suite import Measure, SuiteResult
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.manifest import RankClosed, RankStarted, TraceFinished, append_entry
from kinetoscope.formats.run_row import RunRow, write_row
from kinetoscope.pages.run_list import encode_list
from kinetoscope.server.run_lists import RunLists
from kinetoscope.server.run_search import find_runs

_NUM_RUNS, _QUICK_RUNS, _NUM_RANKS = 300, 20, 8
_START_S = 1_790_000_000
_SEARCH_SHARING_S = 1.1  # requests of the same second share a search
_HAS_ALL_ROWS = "(number) => document.querySelectorAll('.runs tbody tr').length === number"


def run(*, quick: bool) -> SuiteResult:
    """Make the runs, open their list, and add one more."""
    num_runs = _QUICK_RUNS if quick else _NUM_RUNS
    with tempfile.TemporaryDirectory(prefix="runs-") as name:
        folder, cache = Path(name, "runs"), Path(name, "cache")
        with patch.dict(os.environ, XDG_CACHE_HOME=str(cache)):
            for number in range(num_runs):
                _make_run(folder, number)
            _keep_rows(folder)
            pages = [_measure_first_page_s(folder, num_runs) for _ in range(1 if quick else 5)]
            again, one_more = _measure_searches(folder, num_runs, 3 if quick else 20)
    link_s, page_s = (min(times) for times in zip(*pages, strict=True))
    measures = [
        Measure(f"first page of {num_runs} runs", page_s, "s", f"after opening the link, the best of {len(pages)}"),
        Measure("command until its link", link_s, "s", "the interpreter's start in it"),
        Measure("list again", statistics.median(again), "ms", f"of processors; at most {max(again):.0f}"),
        Measure("one more run", statistics.median(one_more) - statistics.median(again), "ms", "of processors"),
    ]
    return SuiteResult(
        suite="run_list",
        title=f"the list of {num_runs} runs of {_NUM_RANKS} ranks, all known",
        measures=measures,
        notes=["In Chromium without a GPU, 1440x900. One more run is one that was never seen before."],
    )


def _make_run(folder: Path, number: int) -> None:
    """Write a finished run: a small trace and a manifest of each rank."""
    began = time.gmtime(_START_S + 3600 * number)
    traces = folder / time.strftime("%Y%m%d-%H%M%S", began) / "traces"
    for rank in range(_NUM_RANKS):
        start = f"{time.strftime('%Y%m%dT%H%M%S', began)}-{rank}-{number:08x}"
        attempt = Attempt("run", 0, 1, start, f"node{rank // 4}")
        append_entry(traces, rank, RankStarted(Ranks(rank, rank, _NUM_RANKS, _NUM_RANKS), attempt))
        (traces / f"ep0-ba12-rank{rank}.json").write_text('{"traceEvents": []}')
        append_entry(traces, rank, TraceFinished(rank, f"ep0-ba12-rank{rank}.json", 19, {}, 0, start))
        append_entry(traces, rank, RankClosed(rank, start))


def _keep_rows(folder: Path) -> None:
    for number, found in enumerate(find_runs(RunFolder(folder)).runs):
        row = RunRow(
            content_hash=found.content_hash,
            num_steps=10,
            step_ns=1e7 + 1e4 * number,
            finding="The loop waits for its data" if number % 3 else "",
            mfu=0.4,
            peak_bytes=1 << 34,
            ranks=[*range(_NUM_RANKS)],
            devices=["NVIDIA H100 80GB HBM3"],
        )
        write_row(folder / found.name, row)


def _measure_first_page_s(folder: Path, num_runs: int) -> tuple[float, float]:
    """Return the time until the command shows its link, and then until a browser shows all rows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        tab = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        tab.goto("about:blank")
        began = time.perf_counter()
        with _open_view(folder) as link:
            linked = time.perf_counter()
            tab.goto(link)
            tab.wait_for_function(_HAS_ALL_ROWS, arg=num_runs)
            shown = time.perf_counter()
        browser.close()
    return linked - began, shown - linked


@contextmanager
def _open_view(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "kinetoscope", "view", str(folder), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        links = (re.search(r"http://\S+token=\S+", line) for line in process.stdout)
        yield next(link[0] for link in links if link)
        process.terminate()


def _measure_searches(folder: Path, num_runs: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return CPU milliseconds for the list again, and for the first one after a run was added."""
    lists = RunLists(RunFolder(folder), "https://ui.perfetto.dev")
    encode_list(lists.all())
    again, one_more = [], []
    for number in range(rounds):
        again.append(_measure_list_ms(lists))
        _make_run(folder, num_runs + number)
        one_more.append(_measure_list_ms(lists))
    return again, one_more


def _measure_list_ms(lists: RunLists) -> float:
    time.sleep(_SEARCH_SHARING_S)
    begin = time.process_time()
    encode_list(lists.all())
    return 1e3 * (time.process_time() - begin)
