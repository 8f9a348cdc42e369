"""Ways to get a finished recording out of Kineto, and how long each may hold the GIL.

We measure the processor time of the calling thread, which other load hardly changes. If it holds the GIL, training
waits that long. The work of other threads and processes is not included.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.suite import Measure, SuiteResult

Way = Callable[[Any, Path], object]
_READ_FIELDS = ("name", "type", "timestamp", "duration", "device_id", "resource_id", "correlation_id", "metadata_json")


def run(*, quick: bool) -> SuiteResult:
    """Return each way on recordings of the same work."""
    import torch.profiler

    from benchmarks.torch.work import record

    num_events, rounds = (3_000, 1) if quick else (30_000, 5)
    measures = []
    for name, way in _WAYS.items():
        taken = []
        for _ in range(rounds):
            results = record(torch.profiler, num_events, record_shapes=True).profiler.kineto_results
            with tempfile.TemporaryDirectory() as folder:
                begin = time.thread_time()
                way(results, Path(folder))
                taken.append(time.thread_time() - begin)
            del results
        measures.append(Measure(name, median(taken) * 1e3, "ms"))
    held = {measure.name: measure.value for measure in measures}
    native = held[_NAMES] + held[_WITHOUT]
    measures.append(Measure("ours / Kineto's save with the lock", native / held[_WITH], "x", "names, and the pipe"))
    return SuiteResult(
        suite="torch_saving",
        title=f"processor time of the thread that saves {num_events} events with shapes",
        measures=measures,
        notes=[
            "A fork takes longer the more memory is in use, and must not be where CUDA is initialised.",
            "Checking and packing the text holds the lock for a few percent of its time only.",
        ],
    )


def _save_with_gil(results: Any, folder: Path) -> None:
    results.save(str(folder / "trace.json"))


def _save_without_gil(results: Any, folder: Path) -> None:
    from kinetoscope.torch.kineto_stream import open_kineto_stream

    with open_kineto_stream(results, folder) as stream, open(folder / "trace.json", "wb") as file:
        while piece := stream.read():
            file.write(piece)


def _read_and_compress(results: Any, folder: Path) -> None:
    from kinetoscope.torch.kineto_stream import open_kineto_stream
    from kinetoscope.torch.kineto_text import read_text

    with open_kineto_stream(results, folder) as stream:
        read_text(stream, [])


def _read_names(results: Any, folder: Path) -> None:
    from kinetoscope.torch.original_names import find_original_names

    find_original_names(results)


def _fork(results: Any, folder: Path) -> None:
    """Fork only; the child does the rest."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def _read_fields(results: Any, folder: Path) -> None:
    """Read what a trace needs of each event, and write nothing."""
    activities = results.trace_activities()
    for method in _READ_FIELDS:
        list(map(getattr(type(activities[0]), method), activities))


_WITH, _WITHOUT = "Kineto's save, with the lock", "Kineto's save, without the lock"
_NAMES = "reading the names"
_WAYS: dict[str, Way] = {
    _WITH: _save_with_gil,
    "a fork, for a child that saves": _fork,
    "reading field by field": _read_fields,
    _WITHOUT: _save_without_gil,
    _NAMES: _read_names,
    "saving without the lock, checking and packing": _read_and_compress,
}
