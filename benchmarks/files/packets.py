"""Time and memory of writing packets for Perfetto, for spans in the order of their starts or ends."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.suite import Measure, SuiteResult

_NUM_BATCHES = 120_000
_NUM_PARTS = 5
_CONVERT_PROGRAM = """
import re, sys, time
from pathlib import Path
from kinetoscope.merge.merge_traces import merge_traces
begin = time.process_time()
merge_traces(*sys.argv[1:])
print(time.process_time() - begin, re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def run(*, quick: bool) -> SuiteResult:
    """Convert the same spans in both orders, in turns."""
    rounds, num_batches = (1, 2_000) if quick else (7, _NUM_BATCHES)
    best_s: dict[str, float] = {}
    peaks: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="packets-") as name:
        folder = Path(name)
        files = {order: _write(folder / f"{order}.json", order, num_batches) for order in ("begin", "end")}
        for _ in range(rounds):
            for order, file in files.items():
                seconds, peak_bytes = _convert(file, folder / "out.pftrace")
                best_s[order] = min(seconds, best_s.get(order, seconds))
                peaks[order] = max(peak_bytes, peaks.get(order, 0))
        size_bytes = files["end"].stat().st_size
    return SuiteResult(
        suite="packets",
        title=f"a .pftrace of {num_batches * (_NUM_PARTS + 1):,} spans, {size_bytes / 1e6:.0f} MB of JSON",
        measures=[
            Measure("order of their end / of their begin", best_s["end"] / best_s["begin"], "x"),
            *(Measure(f"peak memory, order of their {order}", peak / 1e6, "MB") for order, peak in peaks.items()),
        ],
        notes=["Times are CPU times. A recorder writes spans in the order of their end, Kineto by start."],
    )


def _write(path: Path, order: str, num_batches: int) -> Path:
    """Write the spans of a loop: each batch contains its parts, and one span contains all batches."""
    with path.open("w") as file:
        file.write('{"baseTimeNanoseconds": 1790857026000000000, "kinetoscope": {"rank": 0}, "traceEvents": [\n')
        fit = _format_span("fit", 0, 10 * num_batches)
        lines = [] if order == "end" else [fit]
        for batch in range(num_batches):
            parts = [_format_span("part", 10 * batch + part, 1, text="x" * 60) for part in range(_NUM_PARTS)]
            around = _format_span("batch", 10 * batch, 9)
            lines += [*parts, around] if order == "end" else [around, *parts]
        file.write(",\n".join([*lines, fit] if order == "end" else lines) + "]}")
    return path


def _format_span(name: str, begin_us: int, duration_us: int, **args: str) -> str:
    span = {"ph": "X", "name": name, "cat": "marker", "pid": 4, "tid": 4, "ts": begin_us, "dur": duration_us}
    return json.dumps(span | {"args": args})


def _convert(file: Path, output: Path) -> tuple[float, int]:
    command = [sys.executable, "-c", _CONVERT_PROGRAM, str(output), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    seconds, kilobytes = re.split(r"\s+", done.stdout.strip())
    return float(seconds), int(kilobytes) * 1024
