"""benchmarks: files in which every event is broken. A trace flows in, broken in several ways; seconds flow out."""

import contextlib
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.files.traces import write_large_trace
from benchmarks.suite import Measure, SuiteResult
from kinetoscope.errors import KinetoscopeError
from kinetoscope.merge.check import check_trace
from kinetoscope.merge.merge_traces import merge_traces
from kinetoscope.table.load import read_trace

_TMPFS = Path("/dev/shm")
_BYTES = 82_000_000  # 327,000 events, as many as 200 MB of a trace with shapes have
_QUICK_BYTES = 2_000_000

# What is found in each event, and what takes its place.
_BREAKS: dict[str, tuple[bytes, bytes]] = {
    "bare quotes": (rb'"name": "', rb'"name": "say "x" '),
    "bare backslash": (rb'"name": "', rb'"name": "C:\\q '),
    "control character": (rb'"name": "', b'"name": "\x01'),
    "bytes that are not UTF-8": (rb'"name": "', b'"name": "\xff'),
    "NaN": (rb'"name":', rb'"loss": NaN, "name":'),
    "NaN for a time": (rb'"ts": [0-9.]+', rb'"ts": NaN'),
    "a time that is a string": (rb'"ts": ([0-9.]+)', rb'"ts": "\1"'),
    "comma behind the last field": (rb"\n  \}", rb",\n  }"),
    "comma missing": (rb',\n    "name"', rb'\n    "name"'),
    "string without its end": (rb'("name": "[^"\n]*)"', rb"\1"),
}


def run(*, quick: bool) -> SuiteResult:
    """Loads, checks and merges a file for each way in which its events are broken; the slowest of the three counts."""
    with tempfile.TemporaryDirectory(dir=_TMPFS if _TMPFS.is_dir() else None) as name:
        whole = write_large_trace(Path(name, "whole.pt.trace.json"), _QUICK_BYTES if quick else _BYTES)
        text = whole.read_bytes()
        num_events = text.count(b'"ph"')
        measures = [_measure("not broken", whole)]
        for kind, (found, instead) in _BREAKS.items():
            broken = Path(name, "broken.pt.trace.json")
            broken.write_bytes(re.sub(found, instead, text))
            measures.append(_measure(kind, broken))
    return SuiteResult(
        suite="broken_files",
        title=f"a trace of {num_events} events, all of them broken in the same way",
        measures=measures,
        notes=["The processor's seconds of what takes longest: to load it, to check it, or to merge it."],
    )


def _measure(kind: str, file: Path) -> Measure:
    output = file.with_name("out.json")
    works: dict[str, Callable[[], object]] = {
        "load": lambda: read_trace(str(file)),
        "check": lambda: check_trace(file),
        "merge": lambda: merge_traces(output, file),
    }
    seconds = {name: _seconds(work) for name, work in works.items()}
    detail = ", ".join(f"{name} {taken:.2f}" for name, taken in seconds.items())
    return Measure(kind, max(seconds.values()), "s", detail)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    with contextlib.suppress(KinetoscopeError):  # nothing is left of it, which is an answer too
        work()
    return time.process_time() - begin
