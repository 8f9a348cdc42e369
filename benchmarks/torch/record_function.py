"""benchmarks: what `record_function` costs while nothing records, under a profiler, and under an execution trace."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.interleaved import Candidate, empty_loop, given, measure, statement
from benchmarks.suite import Measure, SuiteResult

_WHEN = ("off", "on", "on with shapes", "under an execution trace")


def run(*, quick: bool) -> SuiteResult:
    """Ours and stock's, in one interleaved run."""
    candidates = [empty_loop(), *(candidate for when in _WHEN for candidate in _pair(when))]
    timings = measure(candidates, rounds=6 if quick else 40, round_ms=2 if quick else 10)
    measures = []
    for when in _WHEN:
        replacement, stock = (timings.cost_ns(one) for one in candidates if one.name.endswith(f", {when}"))
        measures.append(
            Measure(
                f"record_function {when} / stock's", replacement / stock, "x", f"{replacement:.0f} / {stock:.0f} ns"
            )
        )
    return SuiteResult(
        suite="torch_record_function",
        title="one labelled span beside stock's",
        measures=measures,
        times_ns=timings.summary(),
    )


def _pair(when: str) -> list[Candidate]:
    import torch.profiler

    import kinetoscope.torch

    text = 'with record_function("forward"): pass'
    return [
        statement(f"{name}, {when}", text, partial(_around(when), record_function=module.record_function))
        for name, module in (("ours", kinetoscope.torch), ("stock", torch.profiler))
    ]


def _around(when: str) -> Callable[..., AbstractContextManager[Mapping[str, Any]]]:
    return {"off": given, "under an execution trace": _observed}.get(when, partial(_profiled, "shapes" in when))


@contextmanager
def _profiled(record_shapes: bool, **variables: Any) -> Iterator[Mapping[str, Any]]:
    from kinetoscope.torch import profile

    with profile(record_shapes=record_shapes):
        yield variables


@contextmanager
def _observed(**variables: Any) -> Iterator[Mapping[str, Any]]:
    from kinetoscope.torch import ExecutionTraceObserver

    with tempfile.TemporaryDirectory() as folder:
        observer = ExecutionTraceObserver().register_callback(Path(folder) / "trace.json")
        observer.start()
        try:
            yield variables
        finally:
            observer.cleanup()
