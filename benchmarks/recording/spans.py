"""Variants of a span around a block, of Kinetoscope and other profilers, each switched off and on.

A way is the expression of a ``with`` statement, and the context that it needs. So one loop can measure them all.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.recording.profilers import recording
from kinetoscope import ProfilerAction

Variables = Mapping[str, Any]


@dataclass(frozen=True)
class SpanVariant:
    """One way to put a span around a block.

    Attributes:
        expression: Text that follows ``with``; ``{index}`` and ``{name}`` in it are replaced for each span.
        around: Context that gets the names of all spans and yields the variables of the expression.
        tracer: Name of the tracer that is switched on as well.
    """

    name: str
    expression: str
    around: Callable[[Sequence[str]], AbstractContextManager[Variables]]
    tracer: str | None = None

    def span(self, index: int, name: str) -> str:
        """Return the expression for one span."""
        return self.expression.format(index=index, name=name)


def make_marker_variants() -> list[SpanVariant]:
    """Return Kinetoscope's markers, made once and reused."""
    return [
        SpanVariant("marker with, active", "span_{index}", partial(_open_markers, ProfilerAction.ACTIVE)),
        SpanVariant("marker with, skipped", "span_{index}", partial(_open_markers, ProfilerAction.SKIP)),
    ]


def make_peer_variants() -> tuple[list[SpanVariant], list[str]]:
    """Return the ways of other profilers that are installed, and a note for each that is not."""
    ways, notes = [], []
    for package, build in _PEERS.items():
        try:
            ways += build()
        except ImportError:
            notes.append(f"{package} is not installed: left out.")
    return ways, notes


@contextmanager
def _open_markers(action: ProfilerAction, names: Sequence[str]) -> Iterator[Variables]:
    with recording(action) as profiler:
        yield {f"span_{index}": profiler.marker(name) for index, name in enumerate(names)}


@contextmanager
def torch_profiler() -> Iterator[None]:
    """Record with torch.profiler on the CPU."""
    import torch.profiler

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        yield


def _make_torch_variants() -> list[SpanVariant]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # Kineto announces each start and stop on stderr
    import torch.profiler  # noqa: F401 - whether it is there

    return [
        SpanVariant("record_function, off", "record_function('{name}')", _record_functions),
        SpanVariant(
            "record_function, on",
            "record_function('{name}')",
            partial(_with_torch_profiler, _record_functions),
            "torch",
        ),
        SpanVariant("_RecordFunctionFast reused, off", "span_{index}", _fast_record_functions),
        SpanVariant(
            "_RecordFunctionFast reused, on",
            "span_{index}",
            partial(_with_torch_profiler, _fast_record_functions),
            "torch",
        ),
    ]


@contextmanager
def _record_functions(names: Sequence[str]) -> Iterator[Variables]:
    from torch.profiler import record_function

    yield {"record_function": record_function}


@contextmanager
def _fast_record_functions(names: Sequence[str]) -> Iterator[Variables]:
    from torch._C._profiler import _RecordFunctionFast

    yield {f"span_{index}": _RecordFunctionFast(name) for index, name in enumerate(names)}


@contextmanager
def _with_torch_profiler(
    around: Callable[[Sequence[str]], AbstractContextManager[Variables]], names: Sequence[str]
) -> Iterator[Variables]:
    with torch_profiler(), around(names) as variables:
        yield variables


@contextmanager
def _make_one(variable: str, make: Callable[[], Any], names: Sequence[str]) -> Iterator[Variables]:
    yield {variable: make()}


def _make_lightning_variants() -> list[SpanVariant]:
    from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler  # pyright: ignore[reportMissingImports]

    expression = "profiler.profile('{name}')"
    return [
        SpanVariant("Lightning PassThroughProfiler", expression, partial(_make_one, "profiler", PassThroughProfiler)),
        SpanVariant("Lightning SimpleProfiler", expression, partial(_make_one, "profiler", SimpleProfiler)),
    ]


def _make_opentelemetry_variants() -> list[SpanVariant]:
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON  # pyright: ignore[reportMissingImports]

    expression = "tracer.start_as_current_span('{name}')"
    return [
        SpanVariant("OpenTelemetry SDK span, not sampled", expression, partial(_opentelemetry, ALWAYS_OFF)),
        SpanVariant("OpenTelemetry SDK span, kept in memory", expression, partial(_opentelemetry, ALWAYS_ON)),
    ]


@contextmanager
def _opentelemetry(sampler: Any, names: Sequence[str]) -> Iterator[Variables]:
    from opentelemetry.sdk.trace import TracerProvider  # pyright: ignore[reportMissingImports]
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # pyright: ignore[reportMissingImports]
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # pyright: ignore[reportMissingImports]

    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    yield {"tracer": provider.get_tracer("benchmarks")}
    provider.shutdown()


def _make_viztracer_variants() -> list[SpanVariant]:
    import viztracer  # noqa: F401 - whether it is there

    return [
        SpanVariant("viztracer log_event, off", "tracer.log_event('{name}')", partial(_viztracer, False), "viztracer"),
        SpanVariant("viztracer log_event, on", "tracer.log_event('{name}')", partial(_viztracer, True), "viztracer"),
    ]


@contextmanager
def _viztracer(enabled: bool, names: Sequence[str]) -> Iterator[Variables]:
    from viztracer import VizTracer

    tracer = VizTracer(verbose=0, max_stack_depth=0, register_global=False)  # events only, no spans of functions
    tracer.start()
    if not enabled:
        tracer.stop()  # a new tracer has already installed its hook, which slows every call
    try:
        yield {"tracer": tracer}
    finally:
        tracer.stop()
        tracer.clear()
        threading.setprofile(None)


_PEERS: Mapping[str, Callable[[], list[SpanVariant]]] = {
    "torch": _make_torch_variants,
    "lightning": _make_lightning_variants,
    "opentelemetry-sdk": _make_opentelemetry_variants,
    "viztracer": _make_viztracer_variants,
}
