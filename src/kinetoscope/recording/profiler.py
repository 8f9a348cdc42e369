"""Profiler, the part of a run for users. It records through a `RunLifecycle`, by a plain loop or a `Driver`."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from kinetoscope.core.clock.clock import Clock, SystemClock
from kinetoscope.core.job.event import Callback
from kinetoscope.core.job.state import RunState, State
from kinetoscope.errors import SettingsError
from kinetoscope.recording.driver import Driver
from kinetoscope.recording.markers import compiler
from kinetoscope.recording.markers.marker import (
    RECORDING_ACTIONS,
    Marker,
    MarkerArguments,
    ProfilerMarkers,
    inert_marker,
)
from kinetoscope.recording.markers.marker_decorator import mark_function
from kinetoscope.recording.markers.process import this_process
from kinetoscope.recording.markers.schedule import ProfilerAction, Schedule
from kinetoscope.recording.messages.standard_error import log_without_buffer
from kinetoscope.recording.run.lifecycle import RunLifecycle
from kinetoscope.recording.run.loop import Batches, Loop
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.run.settings import RunSettings, check_callbacks, check_state
from kinetoscope.recording.window.trace_handler import run_folder_of
from kinetoscope.spool.spool_folder import DEFAULT_MAX_SPOOL_BYTES

P = ParamSpec("P")
log_without_buffer()
T = TypeVar("T")


class AnyProfiler:
    """Methods that all profilers have, also ``state.profiler`` and `active_profiler()`."""

    lifecycle: RunLifecycle
    """The lifecycle of the run, which its loop drives."""
    _find_marker: Callable[[MarkerArguments], Marker]

    @property
    def run(self) -> RunContext:
        """The run, for its sources and handlers."""
        return self.lifecycle.context

    @property
    def state(self) -> Any:
        """The run's state."""
        return self.lifecycle.state

    @property
    def trace_handlers(self) -> list[Any]:
        """The trace handlers. May be set to one or several."""
        return self.run.handlers

    @trace_handlers.setter
    def trace_handlers(self, handlers: Callback | Collection[Callback]) -> None:
        self.lifecycle.services.set_handlers(check_callbacks(handlers, "trace_handlers"))

    @overload
    def marker(
        self,
        name: str,
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
    ) -> Marker: ...
    @overload
    def marker(
        self,
        name: Callable[P, T],
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
    ) -> Callable[P, T]: ...
    def marker(
        self,
        name: Any,
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
    ) -> Any:
        """Return the marker with this name, created once.

        ``@profiler.marker`` above a function decorates it with the marker of its qualified name.

        A marker that is requested again with other options keeps the first ones, and one warning is logged. Only a few
        thousand unused markers are kept, so use one name and a counter rather than a name per batch.

        Args:
            name: the name of the marker, or the function to decorate.
            actions: the actions under which it records.
            record_instant_on_start: whether to record an instant where a span begins.
            record_instant_on_finish: whether to record an instant where a span ends.
            categories: words by which a viewer can filter.

        Raises:
            SettingsError: if ``name`` is neither a string nor a function.
        """
        options = (actions, record_instant_on_start, record_instant_on_finish, categories)
        if not isinstance(name, str):
            return mark_function(name, lambda text: self._find_marker((text, *options)))
        return inert_marker() if compiler.is_compiling() else self._find_marker((name, *options))

    def get_action(self) -> ProfilerAction:
        """Return the action of the current batch."""
        return self.lifecycle.get_action()

    def schedule(self, state: RunState) -> ProfilerAction:
        """Return the schedule's action for ``state``.

        If the schedule raises or returns no action, the action is SKIP, and the log has one report.
        """
        return self.lifecycle.windows.schedule(state)

    def record_chrome_json_trace_file(self, filepath: str | os.PathLike[str]) -> None:
        """Add a file of Chrome JSON events, such as one of Kineto's, to the cycle that is being recorded.

        The file is kept by a second link (or a copy, if that is not possible), so the caller may delete it. The
        training thread reads nothing. A missing file is reported in the log.
        """
        self.run.add_trace_file(Path(filepath))

    @property
    def resumption_batch_idx(self) -> int:
        """The batch, in its epoch, at which the run was resumed, or 0. A schedule's skip counts from it."""
        return self.lifecycle.windows.resumption_batch

    @resumption_batch_idx.setter
    def resumption_batch_idx(self, batch: int) -> None:
        self.lifecycle.windows.resume_at(batch)


def active_profiler() -> AnyProfiler | None:
    """Return the profiler of this process that has started and is not closed; None if there is none."""
    return None if this_process.run is None else this_process.run.profiler


class Profiler(AnyProfiler):
    """Records a training run by a schedule and hands each finished cycle to its trace handlers.

        with Profiler(cyclic_schedule(warmup=1, active=4), [JSONTraceHandler()]) as profiler:
            for batch in profiler.batches(loader):
                train(batch)

    Arguments may also come in the order ``Profiler(state, schedule, trace_handlers)``.

    Args:
        schedule: a function from the run's `State` to a `ProfilerAction`, such as `cyclic_schedule`'s.
        trace_handlers: one `TraceHandler` or several, which get the finished cycles.
        state: the run's state. By default one is created, with the name ``run_name``.
        sources: recorders that need no markers (`TorchProfiler`, `SystemProfiler`).
        upload_to: the URL below which finished files are uploaded, such as ``s3://bucket/runs``, with any scheme that
            fsspec supports. A background process uploads them, and `close` waits for it. Without ``upload_to``, only
            files whose remote name has its own scheme are uploaded.
        strict: raise errors of sources and handlers, instead of logging them and continuing.
        grace_s: the seconds that saving may take after SIGTERM or SIGHUP.
        close_timeout_s: the seconds that a normal close waits for the merge, for uploads and for the top finding, once
            all is on disk. These processes finish by themselves.
        spool_folder: the folder for unsaved data, so that a kill loses none of it. By default it is ``live`` in the run
            folder of the first handler that has one; False keeps the data in memory.
        live_bytes_max: the maximum size of that data. Records beyond that are dropped until some are saved, and the
            trace has their number. Windows that could not be saved count too, and are retried; the oldest of them are
            discarded before any record is dropped.
        quiet: do not print a report at the end of the run. Otherwise rank 0 prints on stderr, terminal or not, and in a
            notebook below the cell, what was recorded, where, and the next command. A run that recorded nothing always
            reports the reason.
        redact: a function from a string to its replacement. It is called with each name and each string in what
            handlers get and in the files of sources: names of spans, counters, threads and operators, strings in their
            args, metadata, the names of the run and its machine. See docs/privacy.md.
        hangs: whether to write stacks also for a hang that holds the GIL; see docs/hangs.md. Other hangs have stacks
            anyway.
        slow_steps: keep outlier steps while nothing is recorded too, at most 20 per hour, with their phases and the
            line of Python; see docs/slow-steps.md.
        clock: the clock, for tests.

    Raises:
        SettingsError: for an argument that cannot work. `start` raises `NativeExtensionError` where nothing can be
            recorded.
    """

    @overload
    def __init__(
        self,
        schedule: Schedule,
        trace_handlers: Callback | Collection[Callback] = (),
        *,
        state: RunState | None = None,
        sources: Callback | Collection[Callback] = (),
        run_name: str | None = None,
        upload_to: str | None = None,
        strict: bool = False,
        grace_s: float = 10.0,
        close_timeout_s: float = 10.0,
        spool_folder: str | os.PathLike[str] | bool | None = None,
        live_bytes_max: int = DEFAULT_MAX_SPOOL_BYTES,
        quiet: bool = False,
        redact: Callable[[str], str] | None = None,
        hangs: bool = False,
        slow_steps: bool = False,
        clock: Clock | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        state: RunState,
        schedule: Schedule,
        trace_handlers: Callback | Collection[Callback] = (),
        **settings: Any,
    ) -> None: ...

    def __init__(  # pyright: ignore[reportInconsistentOverload] - positional arguments come in either order
        self,
        *arguments: Any,
        schedule: Any = None,
        trace_handlers: Any = (),
        state: Any = None,
        sources: Iterable[Any] = (),
        run_name: str | None = None,
        upload_to: str | None = None,
        strict: bool = False,
        grace_s: float = 10.0,
        close_timeout_s: float = 10.0,
        spool_folder: str | os.PathLike[str] | bool | None = None,
        live_bytes_max: int = DEFAULT_MAX_SPOOL_BYTES,
        quiet: bool = False,
        redact: Callable[[str], str] | None = None,
        hangs: bool = False,
        slow_steps: bool = False,
        clock: Clock | None = None,
    ) -> None:
        state, schedule, trace_handlers = _order_arguments(arguments, state, schedule, trace_handlers)
        settings = RunSettings(
            schedule=schedule,
            upload_to=upload_to,
            strict=strict,
            grace_s=grace_s,
            close_timeout_s=close_timeout_s,
            spool_folder=spool_folder,
            live_bytes_max=live_bytes_max,
            is_quiet=quiet,
            redact=redact,
            hangs=hangs,
            slow_steps=slow_steps,
        )
        state = _make_state(state, run_name)
        state.profiler = self
        markers = ProfilerMarkers(clock or SystemClock())
        self._find_marker = markers.find
        sources = check_callbacks(sources, "sources")
        handlers = check_callbacks(trace_handlers, "trace_handlers")
        self.lifecycle: RunLifecycle = RunLifecycle(self, settings, markers, state, sources, handlers)
        self._loop = Loop(self.lifecycle, state)
        self._counted = self._loop.counted
        self._driver = Driver(self.lifecycle, self._loop)

    def batches(self, iterable: Iterable[T], *, length: int | None = None) -> Batches[T]:
        """Return an iterable over the batches of one epoch, which records each batch and the wait for it as spans.

        Inside a batch, or inside `eval`, the batches belong to an evaluation: they are recorded as evaluation batches,
        and not counted.

        The batches have the type of the iterable's items. For a type checker those of a torch DataLoader are Any, since
        its collate function creates them. Where the loader, or this result, is declared as an ``Iterable[Batch]``, they
        are of type ``Batch``.

        Args:
            iterable: the source of the batches, such as a DataLoader.
            length: the number of batches, by default ``len(iterable)`` if it has one. A schedule needs it to save at
                the epoch's last batch.
        """
        return Batches(self._loop, iterable, length)

    def step(self, *, samples: int = 0, tokens: int = 0) -> None:
        """End a batch of ``samples`` samples and ``tokens`` tokens, in a loop that does not use `batches`.

        The wait for a torch DataLoader is recorded as in `batches`. In a loop that uses `batches`, this only adds the
        samples and tokens.
        """
        if not self._counted.end_step(samples, tokens):
            self._loop.step(samples, tokens)

    def epoch(self, length: int | None = None) -> contextlib.AbstractContextManager[None]:
        """Return a context for one epoch of ``length`` batches, in a loop that uses `step`."""
        return self._loop.epoch(length)

    def eval(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for an evaluation, which becomes a span, as do its batches if they come from `batches`.

        Inside a training batch, an evaluation is recorded if that batch is. Between batches, only the evaluation's own
        span is recorded, and not its batches, markers and torch operators. Its batches are never counted.
        """
        return self._loop.evaluation()

    @property
    def driver(self) -> Driver:
        """The `Driver` of the run, for a trainer that reports its progress instead of a loop over `batches`."""
        return self._driver

    def start(self) -> Self:
        """Start the run, as ``with profiler:`` does.

        Raises:
            ProfilerStateError: if this profiler was used before, or another one is active.
            Exception: an error of a source or handler that is set up.
        """
        self._driver.start()
        return self

    def close(self) -> None:
        """Save what was recorded, wait until it is written, and end all threads and hooks.

        Ctrl-C ends the wait. Unsaved data then remains in the spool folder, for another `close` or for ``kinetoscope
        recover``.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self.start()
        self.lifecycle.is_in_context = True
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lifecycle.is_in_context = False
        try:
            self.lifecycle.close(clean=error_type is None)
        except KeyboardInterrupt:
            if error_type is None or not issubclass(error_type, KeyboardInterrupt):
                raise  # else the first one, which ended the block, propagates with its own traceback

    if not TYPE_CHECKING:  # type checkers report missing attributes themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                _explain_missing(type(self).__name__, name, self.__dict__.get("lifecycle")), name=name, obj=self
            )


_ALTERNATIVES = {
    "stop": "close() ends the run, and so does the end of `with profiler:`",
    "export_chrome_trace": "it saves its traces itself, below {run}, and merges those of all ranks",
    "export_stacks": "record with_stack=True, and open the flame graph: kinetoscope report {run}",
    "export_memory_timeline": "open the chart of memory after the run: kinetoscope report {run}",
    "key_averages": "after the run, use kinetoscope.analyze({path}).operators, or run: kinetoscope summary {run}",
    "events": "after the run, use kinetoscope.load({path}).spans",
    "summary": "after the run, use kinetoscope.analyze({path}), or run: kinetoscope summary {run}",
    "add_metadata": "only torch's profiler has metadata",
    "add_metadata_json": "only torch's profiler has metadata",
}
"""Names of other profilers' methods, and what to use here instead."""


def _explain_missing(kind: str, name: str, run: RunLifecycle | None) -> str:
    """Return the message of the AttributeError for a name that a Profiler does not have."""
    if name not in _ALTERNATIVES:
        return f"{kind!r} object has no attribute {name!r}"
    folder = None
    with contextlib.suppress(Exception):  # before the run starts, a handler may have none
        folder = run_folder_of(run.context.handlers if run is not None else ())
    alternative = _ALTERNATIVES[name].format(run=quote(str(folder or "RUN")), path=repr(str(folder or "RUN")))
    return (
        f"A Kinetoscope Profiler has no {name}: {alternative}. (kinetoscope.torch.profile has all names of "
        "torch.profiler.)"
    )


def _order_arguments(
    arguments: tuple[Any, ...], state: Any, schedule: Any, trace_handlers: Any
) -> tuple[Any, Any, Any]:
    """Return state, schedule and trace handlers, which may be positional, in either order, or named.

    Raises:
        SettingsError: for an argument that is given twice, or too many.
    """
    names = ["state", "schedule", "trace_handlers"] if hasattr(next(iter(arguments), None), "timestamp") else []
    names = names or ["schedule", "trace_handlers"]
    if len(arguments) > len(names):
        raise SettingsError(
            f"A Profiler takes a state, a schedule and trace handlers, not also {arguments[len(names)]!r}."
        )
    named = {"state": state, "schedule": schedule, "trace_handlers": trace_handlers}
    for name, value in zip(names, arguments, strict=False):
        if named[name] not in (None, ()):
            raise SettingsError(f"{name} is given twice: {value!r} by position, and {named[name]!r} by name.")
        named[name] = value
    return named["state"], named["schedule"], named["trace_handlers"]


def _make_state(state: Any, run_name: str | None) -> Any:
    """Return the given state, or a new one with this name."""
    if run_name is not None and (not isinstance(run_name, str) or not run_name):
        raise SettingsError(f"run_name must be a string, not {run_name!r}.")
    if state is None:
        return State(run_name="run" if run_name is None else run_name)
    check_state(state)
    if run_name not in (None, state.run_name):
        raise SettingsError(
            f"run_name={run_name!r} has no effect with a state, whose run_name is {state.run_name!r}. Pass one of them."
        )
    return state
