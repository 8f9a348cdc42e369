"""benchmarks: ways to get a finished recording out of Kineto, and what each takes from a loop that runs meanwhile."""

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.suite import Measure, SuiteResult

Way = Callable[[Any, Path], None]
_ALONE_S = 0.3
_READ = ("name", "type", "timestamp", "duration", "device_id", "resource_id", "correlation_id", "metadata_json")
_SLICE = 2_000
_PAUSE_S = 0.0001


def run(*, quick: bool) -> SuiteResult:
    """A loop in Python on this thread, while another thread, or a child process, saves."""
    import torch.profiler

    from benchmarks.torch.work import record

    num_events, rounds = (3_000, 1) if quick else (30_000, 5)
    measures = []
    for name, way in _WAYS.items():
        lost, taken = [], []
        for _ in range(rounds):
            results = record(torch.profiler, num_events, record_shapes=True).profiler.kineto_results
            with tempfile.TemporaryDirectory() as folder:
                lost_s, taken_s = _lost_beside(way, results, Path(folder))
            lost.append(lost_s)
            taken.append(taken_s)
            del results
        detail = f"of {median(taken) * 1e3:.0f} ms that it takes"
        measures.append(Measure(f"lost beside: {name}", median(lost) * 1e3, "ms", detail))
    return SuiteResult(
        suite="torch_saving",
        title=f"{num_events} events with shapes, and a loop in Python beside their saving",
        measures=measures,
        notes=["A fork takes longer the more memory is in use, and must not be where CUDA is initialised."],
    )


def _lost_beside(way: Way, results: Any, folder: Path) -> tuple[float, float]:
    """By how much the loop fell behind what it does alone, and how long the saving took."""
    alone_until = time.perf_counter() + _ALONE_S
    per_s = _turns(lambda: time.perf_counter() < alone_until) / _ALONE_S
    begin = time.perf_counter()
    if way is _in_a_child:
        child = os.fork()
        if not child:
            way(results, folder)
            os._exit(0)
        turns = _turns(lambda: os.waitpid(child, os.WNOHANG) == (0, 0))
    else:
        saver = threading.Thread(target=way, args=(results, folder))
        saver.start()
        turns = _turns(saver.is_alive)
        saver.join()
    taken = time.perf_counter() - begin
    return taken - turns / per_s, taken


def _turns(goes_on: Callable[[], bool]) -> int:
    """How many turns of a loop there are until it is over; it looks whether it is once in many."""
    turns = 0
    while goes_on():
        for _ in range(1000):
            turns += 1
    return turns


def _with_the_lock(results: Any, folder: Path) -> None:
    results.save(str(folder / "trace.json"))


def _without_the_lock(results: Any, folder: Path) -> None:
    from kinetoscope.torch.kineto_stream import kineto_stream

    with kineto_stream(results, folder) as stream, open(folder / "trace.json", "wb") as file:
        while piece := stream.read():
            file.write(piece)


def _as_ours(results: Any, folder: Path) -> None:
    from kinetoscope.torch.export import copy_trace
    from kinetoscope.torch.kineto_stream import kineto_stream
    from kinetoscope.torch.repair import find_true_names
    from kinetoscope.torch.trace_text import read_text

    names = find_true_names(results)
    with kineto_stream(results, folder) as stream:
        copy_trace(read_text(stream, names.in_order), folder / "trace.json.gz", {})


def _in_a_child(results: Any, folder: Path) -> None:
    results.save(str(folder / "trace.json"))


def _field_by_field(results: Any, folder: Path) -> None:
    """What a trace needs of each event, in slices; nothing is written yet."""
    activities = results.trace_activities()
    for at in range(0, len(activities), _SLICE):
        part = activities[at : at + _SLICE]
        for method in _READ:
            list(map(getattr(type(part[0]), method), part))
        time.sleep(_PAUSE_S)


_WAYS: dict[str, Way] = {
    "Kineto's save, with Python's lock": _with_the_lock,
    "Kineto's save in a forked child": _in_a_child,
    "reading field by field, in slices": _field_by_field,
    "Kineto's save, without the lock": _without_the_lock,
    "all of our export to .gz": _as_ours,
}
