"""The Profiler: the part of a run that a user touches. It records through a `Run`, by a plain loop or a `Driver`."""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from kinetoscope.core.clock.clock import Clock, SystemClock
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
    """What all profilers have: this class's methods may be used on ``state.profiler`` and `active_profiler()`."""

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
    def trace_handlers(self, handlers: Any) -> None:
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
        """The marker with that name, made once. Of a function (``@profiler.marker``), the function decorated with the
        marker that has its qualified name.

        It records while the action is among ``actions``. The two flags make it also record an instant where a span
        begins or ends. ``categories`` are words by which a viewer can filter. If it is asked for again with other
        options, it keeps the first ones, and one warning says so. Only a few thousand markers that are not in use are
        remembered, so for a name that would change with each batch, use one name and a counter.

        Raises `SettingsError` for what is neither a text nor a function.
        """
        options = (actions, record_instant_on_start, record_instant_on_finish, categories)
        if not isinstance(name, str):
            return mark_function(name, lambda text: self._find_marker((text, *options)))
        return inert_marker() if compiler.is_compiling() else self._find_marker((name, *options))

    def get_action(self) -> ProfilerAction:
        """The action of the current batch."""
        return self.lifecycle.get_action()

    def schedule(self, state: RunState) -> ProfilerAction:
        """The schedule's action for ``state``. If the schedule raises or returns no action: SKIP, and one report in the
        log.
        """
        return self.lifecycle.windows.schedule(state)

    def record_chrome_json_trace_file(self, filepath: str | os.PathLike[str]) -> None:
        """Adds a file of Chrome JSON events, such as one of Kineto's, to the cycle that is being recorded.

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
    """The profiler of this process that has started and is not closed; None if there is none."""
    return None if this_process.run is None else this_process.run.profiler


class Profiler(AnyProfiler):
    """Records a training run by a schedule and hands each finished cycle to its trace handlers.

        with Profiler(cyclic_schedule(warmup=1, active=4), [JSONTraceHandler()]) as profiler:
            for batch in profiler.batches(loader):
                train(batch)

    Arguments may also come in the order ``Profiler(state, schedule, trace_handlers)``.

    - ``schedule``: a function from the run's `State` to a `ProfilerAction`, such as `cyclic_schedule`'s.
    - ``trace_handlers``: one `TraceHandler` or several, which get what was recorded.
    - ``state``: the run's state. By default one is made, with the name ``run_name``.
    - ``sources``: what records by itself (`TorchProfiler`, `SystemProfiler`).
    - ``upload_to``: the URL below which finished files are uploaded, such as ``s3://bucket/runs``, with any scheme
      that fsspec knows. A process beside training uploads them, and `close` waits for it. Without ``upload_to``, only
      files whose remote name has its own scheme are uploaded.
    - ``strict``: raise errors of sources and handlers instead of logging them and going on.
    - ``grace_s``: how many seconds saving may take after SIGTERM or SIGHUP. ``close_timeout_s``: how many seconds a
      normal close waits for the merge, for uploads and for the first finding, once all is on disk. These processes
      finish by themselves.
    - ``spool_folder``: the folder in which unsaved data is kept, so that a kill loses none of it. By default it is
      ``live`` in the run folder of the first handler that has one; False keeps the data in memory. It takes at most
      ``live_bytes_max``: what is recorded beyond that is dropped until something is saved, and the trace says how much.
      Windows that could not be saved are kept there too, and tried again; the oldest of these are discarded before
      anything is dropped.
    - ``quiet``: do not say at the end of the run what was recorded, where, and which command comes next. Otherwise
      rank 0 says it on stderr, terminal or not, and in a notebook below the cell. A run that recorded nothing always
      says why.
    - ``redact``: a function from a text to what may be written instead of it. It is asked for each name and each text
      in what handlers get and in the files of sources: names of spans, counters, threads and operators, texts in their
      args, metadata, the names of the run and its machine. See docs/privacy.md.
    - ``hangs``: whether a hang that holds the GIL shall have its stacks, too; see docs/hangs.md. Other hangs have them
      anyway.
    - ``slow_steps``: keep also steps that are slow while nothing is recorded, at most 20 an hour, with their phases and
      the line of Python that they were at: see docs/slow-steps.md.
    - ``clock``: the clock, for tests.

    Raises `SettingsError` for an argument that cannot work. `start` raises `NativeExtensionError` where handlers or
    sources cannot record.
    """

    @overload
    def __init__(
        self,
        schedule: Schedule,
        trace_handlers: Any = (),
        *,
        state: RunState | None = None,
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
    ) -> None: ...
    @overload
    def __init__(self, state: RunState, schedule: Schedule, trace_handlers: Any = (), **settings: Any) -> None: ...

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
        """An iterable over the batches of one epoch: records the wait for each and the batch itself as spans.

        ``length`` is the number of batches, by default ``len(iterable)`` if it has one; a schedule needs it to save at
        the epoch's last batch. Inside a batch, or inside `eval`, the batches belong to an evaluation: they are recorded
        as evaluation batches, and not counted.

        The batches have the type of the iterable's items. For a type checker those of a torch DataLoader are Any,
        because they are what its collate function makes. Where the loader, or what this returns, is declared as an
        ``Iterable[Batch]``, they are of type ``Batch``.
        """
        return Batches(self._loop, iterable, length)

    def step(self, *, samples: int = 0, tokens: int = 0) -> None:
        """Ends a batch of ``samples`` samples and ``tokens`` tokens, in a loop that does not use `batches`.

        The wait for a torch DataLoader is recorded as in `batches`. In a loop that uses `batches`, this only adds the
        samples and tokens.
        """
        if not self._counted.end_step(samples, tokens):
            self._loop.step(samples, tokens)

    def epoch(self, length: int | None = None) -> contextlib.AbstractContextManager[None]:
        """A context around one epoch of ``length`` batches, in a loop that uses `step`."""
        return self._loop.epoch(length)

    def eval(self) -> contextlib.AbstractContextManager[None]:
        """A context around an evaluation, which becomes a span. Its batches become spans too if they come from
        `batches`.

        Inside a training batch, an evaluation is recorded if that batch is. Between batches, only the evaluation's own
        span is recorded, and not its batches, markers and torch operators. Its batches are never counted.
        """
        return self._loop.evaluation()

    @property
    def driver(self) -> Driver:
        """The `Driver` of the run, for a trainer that reports its progress instead of a loop over `batches`."""
        return self._driver

    def start(self) -> Self:
        """Begins the run, as ``with profiler:`` does.

        Raises errors of sources and handlers that set up, and `ProfilerStateError` if this profiler was used before or
        another one is active.
        """
        self._driver.start()
        return self

    def close(self) -> None:
        """Saves what was recorded, waits until it is written, and ends all threads and hooks.

        Ctrl-C ends the wait. What is not saved then stays in the live folder, for another `close` or for ``kinetoscope
        recover``.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self.start()
        self.lifecycle.is_in_context = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lifecycle.is_in_context = False
        try:
            self.lifecycle.close(clean=kind is None)
        except KeyboardInterrupt:
            if kind is None or not issubclass(kind, KeyboardInterrupt):
                raise  # else the first one, which ended the block, goes on and says where

    if not TYPE_CHECKING:  # for type checkers it has only what it has

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                _explain_missing(type(self).__name__, name, self.__dict__.get("lifecycle")), name=name, obj=self
            )


_ALTERNATIVES = {
    "stop": "close() ends the run, and so does the end of `with profiler:`",
    "export_chrome_trace": "it saves its traces itself, below {run}, and merges those of all ranks",
    "export_stacks": "record with_stack=True, and look at the flame graph: kinetoscope report {run}",
    "export_memory_timeline": "look at the memory over time after the run: kinetoscope report {run}",
    "key_averages": "after the run, look at kinetoscope.analyze({path}).operators, or run: kinetoscope summary {run}",
    "events": "after the run, look at kinetoscope.load({path}).spans",
    "summary": "after the run, look at kinetoscope.analyze({path}), or run: kinetoscope summary {run}",
    "add_metadata": "only that of torch has metadata",
    "add_metadata_json": "only that of torch has metadata",
}
"""What people know from other profilers, and how it is done here."""


def _explain_missing(kind: str, name: str, run: RunLifecycle | None) -> str:
    """What is said where a name is asked for that a Profiler does not have."""
    if name not in _ALTERNATIVES:
        return f"{kind!r} object has no attribute {name!r}"
    folder = None
    with contextlib.suppress(Exception):  # before the run begins, a handler may not know it
        folder = run_folder_of(run.context.handlers if run is not None else ())
    here = _ALTERNATIVES[name].format(run=quote(str(folder or "RUN")), path=repr(str(folder or "RUN")))
    return f"A Kinetoscope Profiler has no {name}: {here}. (kinetoscope.torch.profile has all names of torch.profiler.)"


def _order_arguments(
    arguments: tuple[Any, ...], state: Any, schedule: Any, trace_handlers: Any
) -> tuple[Any, Any, Any]:
    """The three arguments that may be positional, in either order, or be named; none of them both."""
    names = ["state", "schedule", "trace_handlers"] if hasattr(next(iter(arguments), None), "timestamp") else []
    names = names or ["schedule", "trace_handlers"]
    if len(arguments) > len(names):
        raise SettingsError(
            f"A Profiler takes a state, a schedule and trace handlers, not also {arguments[len(names)]!r}."
        )
    named = {"state": state, "schedule": schedule, "trace_handlers": trace_handlers}
    for name, value in zip(names, arguments, strict=False):
        if named[name] not in (None, ()):
            raise SettingsError(f"{name} is given twice: {value!r} by its place, and {named[name]!r} by its name.")
        named[name] = value
    return named["state"], named["schedule"], named["trace_handlers"]


def _make_state(state: Any, run_name: str | None) -> Any:
    """The given state, or a new one with that name."""
    if run_name is not None and (not isinstance(run_name, str) or not run_name):
        raise SettingsError(f"run_name must be a string, not {run_name!r}.")
    if state is None:
        return State(run_name="run" if run_name is None else run_name)
    check_state(state)
    if run_name not in (None, state.run_name):
        raise SettingsError(
            f"run_name={run_name!r} has no effect beside a state, whose run_name is {state.run_name!r}. Pass one of "
            "them."
        )
    return state
