"""Time and memory of merging traces of many ranks, compared with a byte copy and a plain loop."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.files.traces import NUM_RANKS, RANK_BYTES, write_rank_traces
from benchmarks.suite import Measure, SuiteResult
from kinetoscope.merge.check import repair_trace
from kinetoscope.merge.merge_traces import merge_traces

_NUM_FILES = 64
_TMPFS = Path("/dev/shm")
_BYTES_PER_MB = 1_000_000
_PEAK_PROGRAM = """
import re, sys
from pathlib import Path
from kinetoscope.merge.merge_traces import merge_traces
merge_traces(*sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def run(*, quick: bool) -> SuiteResult:
    """Merge the same files in several ways, in turns, from tmpfs to tmpfs."""
    rounds, size_bytes = (1, 2 * _BYTES_PER_MB) if quick else (7, RANK_BYTES)
    with tempfile.TemporaryDirectory(dir=_TMPFS if _TMPFS.is_dir() else None) as name:
        folder = Path(name)
        files = write_rank_traces(folder, NUM_RANKS, size_bytes)
        many = [_link(files[number % NUM_RANKS], folder / f"many-rank{number}.json") for number in range(_NUM_FILES)]
        num_bytes, num_spans = sum(file.stat().st_size for file in files), sum(map(_count_spans, files))
        out = {suffix: folder / f"out{suffix}" for suffix in (".json", ".json.gz", ".pftrace")}
        best = _measure_best(
            rounds,
            {
                "copy": lambda: _copy(files, out[".json"]),
                "merge": lambda: merge_traces(out[".json"], *files, num_threads=1),
                "gz": lambda: merge_traces(out[".json.gz"], *files, num_threads=1),
                "perfetto": lambda: merge_traces(out[".pftrace"], *files, num_threads=1),
                "repair": lambda: [repair_trace(file, out[".json"]) for file in files],
            },
        )
        clock = _measure_best(
            rounds,
            {"copy": lambda: _copy(files, out[".json"]), "merge": lambda: merge_traces(out[".json"], *files)},
            time.perf_counter,
        )
        plain = _measure_best(1, {"plain": lambda: _plain_merge(files, out[".json"])})["plain"]
        few = _measure_best(
            max(1, rounds // 3),
            {
                "one": lambda: [merge_traces(out[".json"], file) for file in files],
                "all": lambda: merge_traces(out[".json"], *many, num_threads=1),
            },
        )
        peaks = {len(paths): _measure_peak_bytes(out[".json"], paths) for paths in (files, many)}
    linear = few["all"] * NUM_RANKS / _NUM_FILES / few["one"] - 1
    return SuiteResult(
        suite="merging",
        title=f"{NUM_RANKS} files of {size_bytes / _BYTES_PER_MB:.0f} MB, {num_spans} spans, from tmpfs to tmpfs",
        measures=[
            Measure("byte copy", num_bytes / best["copy"] / _BYTES_PER_MB, "MB/s"),
            Measure("merge to .json / byte copy", best["merge"] / best["copy"], "x"),
            Measure("the same by the clock, several files at a time", clock["merge"] / clock["copy"], "x"),
            Measure("merge to .json", num_bytes / best["merge"] / _BYTES_PER_MB, "MB/s"),
            Measure("merge to .json.gz / to .json", best["gz"] / best["merge"], "x"),
            Measure("plain json loop / merge to .json", plain / best["merge"], "x"),
            Measure("repair, a file at a time / byte copy", best["repair"] / best["copy"], "x"),
            Measure("merge to .pftrace", num_spans / best["perfetto"] / 1e6, "M spans/s"),
            Measure(f"{_NUM_FILES} files / {_NUM_FILES} x 1 file, dearer by", 100 * linear, "%"),
            *(Measure(f"peak memory, {num} files", peak / _BYTES_PER_MB, "MB") for num, peak in peaks.items()),
        ],
        notes=[
            "The plain loop decodes each file with json, gives its events new pids, times and ids, and encodes them.",
            "Where the clock is not named, times are CPU times, so that other load counts little, and of "
            "a merge that looks at one file at a time. Merging reads its files twice.",
        ],
    )


def _measure_best(
    rounds: int, tasks: dict[str, Callable[[], object]], clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Return the seconds of the fastest round of each task, by default processor time. The tasks take turns."""
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(rounds):
        for name, task in tasks.items():
            begin = clock()
            task()
            best[name] = min(best[name], clock() - begin)
    return best


def _link(file: Path, name: Path) -> Path:
    os.link(file, name)
    return name


def _count_spans(file: Path) -> int:
    return file.read_bytes().count(b'"ph": "X"')


def _copy(files: Sequence[Path], output: Path) -> None:
    output.unlink(missing_ok=True)
    with output.open("wb") as target:
        for file in files:
            with file.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)


def _plain_merge(files: Sequence[Path], output: Path) -> None:
    events: list[dict[str, Any]] = []
    for rank, file in enumerate(files):
        trace = json.loads(file.read_bytes())
        for event in trace["traceEvents"]:
            event["pid"] = rank
            if "ts" in event:
                event["ts"] += trace["baseTimeNanoseconds"] / 1000
            if "id" in event:
                event["id"] = f"{rank}-{event['id']}"
            events.append(event)
    with output.open("w") as target:
        json.dump({"traceEvents": events}, target)


def _measure_peak_bytes(output: Path, files: Sequence[Path]) -> int:
    command = [sys.executable, "-c", _PEAK_PROGRAM, str(output), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return int(done.stdout) * 1024
