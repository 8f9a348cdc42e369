"""Cost of one span, instant or counter in a tight loop, in units of an empty ``with``.

F is the cost of an empty ``with`` on a C type, a connection of sqlite3. Its `__enter__` returns itself, and its
`__exit__` checks for an open transaction, which there never is. That is within a tenth of a C type written to do
nothing (1.58 times `time.time_ns()` against 1.43). A lock costs twice as much, because it locks. A closed `os.scandir`
costs a third more, because its `__exit__` takes its arguments as a tuple.
"""

import sqlite3
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import Any

import kinetoscope
from benchmarks.interleaved import (
    EMPTY_LOOP,
    Candidate,
    Timings,
    make_empty_loop,
    make_statement,
    measure,
    provide_variables,
)
from benchmarks.recording.profilers import recorder_name, recording
from benchmarks.recording.spans import SpanVariant, make_marker_variants, make_peer_variants
from benchmarks.suite import Measure, SuiteResult
from kinetoscope import Marker, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

_F = "empty with, C type"
_PLAIN_CALL = "plain call"
_ACTIVE = "marker with, active"
_BASES = (EMPTY_LOOP, _F, _PLAIN_CALL)
_NUM_MEASURED_SPANS = 10_000


def run(*, quick: bool) -> SuiteResult:
    """Measure everything in one interleaved run."""
    peers, notes = make_peer_variants()
    with closing(sqlite3.connect(":memory:")) as connection:
        candidates = [*_make_baselines(connection), *_make_marker_statements(), *map(_make_with_statement, peers)]
        timings = measure(candidates, rounds=8 if quick else 60, round_ms=1 if quick else 4)
    f_ns = timings.cost_ns(candidates[1])
    return SuiteResult(
        suite="marker_cost",
        title=f"tight loop, over the empty loop; F = {_F}",
        measures=[*_costs(candidates, timings, f_ns), *_compare_peers(candidates, timings), *_bytes_per_span()],
        recorder=recorder_name(),
        notes=notes,
        times_ns=timings.summary(),
    )


class _EmptyContext:
    def __enter__(self) -> "_EmptyContext":
        return self

    def __exit__(self, *exception: object) -> None:
        pass


@contextmanager
def _empty_generator() -> Iterator[None]:
    yield


def _function() -> None:
    pass


def _make_baselines(connection: sqlite3.Connection) -> list[Candidate]:
    """Return the empty loop, F, and other known costs to compare with."""
    return [
        make_empty_loop(),
        make_statement(_F, "with context: pass", partial(provide_variables, context=connection)),
        make_statement(
            "empty with, Python class", "with context: pass", partial(provide_variables, context=_EmptyContext())
        ),
        make_statement(
            "empty with, contextmanager", "with context(): pass", partial(provide_variables, context=_empty_generator)
        ),
        make_statement("time.time_ns()", "function()", partial(provide_variables, function=time.time_ns)),
        make_statement(_PLAIN_CALL, "function()", partial(provide_variables, function=_function)),
    ]


def _make_marker_statements() -> list[Candidate]:
    """Return a marker in each of its forms, and a library's marker without an active profiler."""
    return [
        *map(_make_with_statement, make_marker_variants()),
        *_make_both_states(
            "marker decorator over the plain call", "function()", _decorated_variables, over=_PLAIN_CALL
        ),
        *_make_both_states("marker begin/end by token", "marker.end(marker.begin())", _marker_variables),
        *_make_both_states("marker instant", "marker.instant()", _marker_variables),
        *_make_both_states("marker counter of one value", "marker.counter(0.25)", _marker_variables),
        *_make_both_states("marker counter of a dict", "marker.counter(values)", _counter_variables),
        make_statement("kinetoscope.marker reused, no profiler", "with marker: pass", _library_marker),
        make_statement(
            "kinetoscope.marker(name) each time, no profiler", "with marker('span'): pass", _library_markers
        ),
    ]


def _make_with_statement(variant: SpanVariant) -> Candidate:
    return make_statement(variant.name, f"with {variant.span(0, 'span')}: pass", partial(variant.around, ["span"]))


def _make_both_states(
    name: str, text: str, variables: Callable[[Marker], Mapping[str, Any]], over: str = EMPTY_LOOP
) -> Iterator[Candidate]:
    for state, action in (("active", ProfilerAction.ACTIVE), ("skipped", ProfilerAction.SKIP)):
        yield make_statement(f"{name}, {state}", text, partial(_open_marker, action, variables), over)


@contextmanager
def _open_marker(
    action: ProfilerAction, variables: Callable[[Marker], Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    with recording(action) as profiler:
        yield variables(profiler.marker("span"))


def _marker_variables(marker: Marker) -> Mapping[str, Any]:
    return {"marker": marker}


def _decorated_variables(marker: Marker) -> Mapping[str, Any]:
    return {"function": marker(_function)}


def _counter_variables(marker: Marker) -> Mapping[str, Any]:
    return {"marker": marker, "values": {"loss": 0.25}}


def _library_marker() -> AbstractContextManager[Mapping[str, Any]]:
    return provide_variables(marker=kinetoscope.marker("span"))


def _library_markers() -> AbstractContextManager[Mapping[str, Any]]:
    return provide_variables(marker=kinetoscope.marker)


def _costs(candidates: list[Candidate], timings: Timings, f_ns: float) -> Iterator[Measure]:
    for candidate in candidates:
        if candidate.name != EMPTY_LOOP:
            detail = f"{timings.cost_ns(candidate):.0f} ns, median {timings.median_cost_ns(candidate):.0f}"
            yield Measure(candidate.name, timings.cost_ns(candidate) / f_ns, "F", detail)


def _compare_peers(candidates: list[Candidate], timings: Timings) -> Iterator[Measure]:
    """Return the ratio of each other profiler's recorded span to ours."""
    cost_ns = {candidate.name: timings.cost_ns(candidate) for candidate in candidates}
    for peer, name in _RECORDED_BY_PEERS.items():
        if name in cost_ns:
            yield Measure(f"{peer} / {_ACTIVE}", cost_ns[name] / cost_ns[_ACTIVE], "x")


_RECORDED_BY_PEERS = {
    "record_function on": "record_function, on",
    "_RecordFunctionFast on": "_RecordFunctionFast reused, on",
    "Lightning SimpleProfiler": "Lightning SimpleProfiler",
    "OpenTelemetry SDK": "OpenTelemetry SDK span, kept in memory",
    "viztracer log_event": "viztracer log_event, on",
}


def _bytes_per_span() -> list[Measure]:
    """Measure the bytes of a span when it is handed to the writer, and on Python's heap before that."""
    handler = MemoryTraceHandler()
    with recording(ProfilerAction.ACTIVE, handler) as profiler:
        span = profiler.marker("span")
        with _heap_growth() as growth:
            for _ in range(_NUM_MEASURED_SPANS):
                with span:
                    pass
    num_bytes = sum(len(part.read()) for cycle in handler.cycles for thread in cycle.threads for part in thread.parts)
    return [
        Measure("record handed over, of a span", num_bytes / len(handler.spans("span")), "bytes"),
        Measure("Python heap while the window is open, of a span", growth[0] / _NUM_MEASURED_SPANS, "bytes"),
    ]


@contextmanager
def _heap_growth() -> Iterator[list[int]]:
    """Yield a list which after the block holds the number of bytes that Python's heap has grown."""
    growth: list[int] = []
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    yield growth
    growth.append(tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
