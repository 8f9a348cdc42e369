"""Cost of `record_function` while nothing records, under a profiler, and under an execution trace."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.interleaved import Candidate, make_empty_loop, make_statement, measure, provide_variables
from benchmarks.suite import Measure, SuiteResult

_STATES = ("off", "on", "on with shapes", "under an execution trace")


def run(*, quick: bool) -> SuiteResult:
    """Measure Kinetoscope's and torch's `record_function` in one interleaved run."""
    candidates = [make_empty_loop(), *(candidate for when in _STATES for candidate in _make_pair(when))]
    timings = measure(candidates, rounds=6 if quick else 40, round_ms=2 if quick else 10)
    measures = []
    for when in _STATES:
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


def _make_pair(when: str) -> list[Candidate]:
    import torch.profiler

    import kinetoscope.torch

    text = 'with record_function("forward"): pass'
    return [
        make_statement(f"{name}, {when}", text, partial(_choose_context(when), record_function=module.record_function))
        for name, module in (("ours", kinetoscope.torch), ("stock", torch.profiler))
    ]


def _choose_context(when: str) -> Callable[..., AbstractContextManager[Mapping[str, Any]]]:
    return {"off": provide_variables, "under an execution trace": _with_observer}.get(
        when, partial(_with_profiler, "shapes" in when)
    )


@contextmanager
def _with_profiler(record_shapes: bool, **variables: Any) -> Iterator[Mapping[str, Any]]:
    from kinetoscope.torch import profile

    with profile(record_shapes=record_shapes):
        yield variables


@contextmanager
def _with_observer(**variables: Any) -> Iterator[Mapping[str, Any]]:
    from kinetoscope.torch import ExecutionTraceObserver

    with tempfile.TemporaryDirectory() as folder:
        observer = ExecutionTraceObserver().register_callback(Path(folder) / "trace.json")
        observer.start()
        try:
            yield variables
        finally:
            observer.cleanup()
