"""A close whose trace the training process writes, compared with one that leaves it to another process.

Of each pair of closes, one is ours. In the other, the handler takes no window: Kineto's file and the records stay in
the spool, the training process ends, and `kinetoscope recover` makes the trace from them at low priority. That is the
work of a hand-over as far as it exists: it lacks the events of sources, and the relation to the clock of rank 0.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import kinetoscope
from benchmarks.recording.profilers import recorder_name
from benchmarks.suite import Measure, SuiteResult

_PROGRAM = """
import json, logging, resource, sys, time
import torch
import kinetoscope

folder, way, num_products, num_spans = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
logging.disable(logging.CRITICAL)  # a handler that fails is reported

class Leaves(kinetoscope.JSONTraceHandler):
    def process_cycle(self, cycle):
        raise RuntimeError("another process makes this trace")

profiler = kinetoscope.profile(
    folder,
    schedule=lambda state: kinetoscope.ProfilerAction.ACTIVE,
    handlers=[kinetoscope.JSONTraceHandler() if way == "in the process" else Leaves()],
    torch=kinetoscope.TorchProfiler(filename=None) if num_products else False,
    quiet=True,
)
profiler.lifecycle.windows.memory_limit.share = None
marker = profiler.marker("span")
with profiler:
    for _ in profiler.batches(range(4)):
        y = torch.ones(1)
        for _ in range(num_products // 4):
            y = y * 1.0
        for _ in range(num_spans // 4):
            with marker:
                pass
    began_s, cpu_s = time.monotonic(), time.process_time()
now_s, used_s = time.monotonic(), time.process_time()
peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
merge = resource.getrusage(resource.RUSAGE_CHILDREN)
times = {"wall_s": now_s - began_s, "cpu_s": used_s - cpu_s, "other_cpu_s": merge.ru_utime + merge.ru_stime}
print(json.dumps(times | {"peak_bytes": peak_bytes}))
"""
_IN_PROCESS, _HANDED_OVER = "in the process", "handed over"
_WINDOWS = {"60,000 multiplications": (60_000, 0), "1 million spans": (0, 1_000_000)}
_QUICK_WINDOWS = {"6,000 multiplications": (6_000, 0), "20,000 spans": (0, 20_000)}


@dataclass(frozen=True, slots=True)
class CloseCost:
    """The seconds and bytes of one close, and those of the other process, which merges or also makes the trace."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    other_wall_s: float = 0.0
    other_cpu_s: float = 0.0


def run(*, quick: bool) -> SuiteResult:
    """Close windows of several sizes both ways, in turns."""
    windows = _QUICK_WINDOWS if quick else _WINDOWS
    closes: dict[tuple[str, str], list[CloseCost]] = {}
    for _ in range(1 if quick else 3):
        for size, (num_products, num_spans) in windows.items():
            for way in random.sample((_IN_PROCESS, _HANDED_OVER), 2):
                closes.setdefault((size, way), []).append(_measure_close(way, num_products, num_spans))
    compared = [_compare(size, closes[size, _IN_PROCESS], closes[size, _HANDED_OVER]) for size in windows]
    return SuiteResult(
        suite="close",
        title="a close whose trace the training process writes: saved if it were handed over",
        measures=list(chain(*compared)),
        recorder=recorder_name(),
        notes=["Medians. CPU time counts from the last step on."],
    )


def _compare(size: str, in_process: list[CloseCost], handed_over: list[CloseCost]) -> Iterator[Measure]:
    def median(closes: list[CloseCost], *names: str) -> float:
        return statistics.median(sum(getattr(close, name) for name in names) for close in closes)

    rows = {
        "until training exits": ("s", 1.0, ("wall_s",), ("wall_s",)),
        "until the trace exists": ("s", 1.0, ("wall_s",), ("wall_s", "other_wall_s")),
        "CPU time of training": ("s", 1.0, ("cpu_s",), ("cpu_s",)),
        "all CPU time": ("s", 1.0, ("cpu_s", "other_cpu_s"), ("cpu_s", "other_cpu_s")),
        "peak memory of training": ("MB", 1e6, ("peak_bytes",), ("peak_bytes",)),
    }
    for what, (unit, scale, own_names, other_names) in rows.items():
        own, other = median(in_process, *own_names) / scale, median(handed_over, *other_names) / scale
        detail = f"{own:,.2f} {unit} in the process, {other:,.2f} {unit} handed over"
        yield Measure(f"{size}: {what}", own - other, unit, detail)


def _measure_close(way: str, num_products: int, num_spans: int) -> CloseCost:
    with tempfile.TemporaryDirectory() as folder:
        run_folder = Path(folder) / "run"
        command = [sys.executable, "-c", _PROGRAM, str(run_folder), way, str(num_products), str(num_spans)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        own = json.loads(done.stdout.splitlines()[-1])
        other = _measure_recover(run_folder) if way == _HANDED_OVER else {}
        _check_trace(run_folder, num_products, num_spans)
    return CloseCost(**(own | other))


def _measure_recover(run_folder: Path) -> dict[str, float]:
    command = ["nice", "-n", "10", sys.executable, "-m", "kinetoscope", "recover", str(run_folder)]
    began_s = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"kinetoscope recover ended with {process.returncode}.")
    return {
        "other_wall_s": time.monotonic() - began_s,
        "other_cpu_s": usage.ru_utime + usage.ru_stime,
    }


def _check_trace(run_folder: Path, num_products: int, num_spans: int) -> None:
    """Raise RuntimeError unless the traces have all spans: else the two ways do different work."""
    names = kinetoscope.load(run_folder, cache=False).spans.lazy().collect().get_column("name")
    for name, number in (("aten::mul", num_products), ("span", num_spans)):
        if (found := (names == name).sum()) != number:
            raise RuntimeError(f"The traces have {found} of {number} spans of the name {name}.")
