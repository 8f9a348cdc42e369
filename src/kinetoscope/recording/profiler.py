"""recording: the Profiler, what a user touches of a run. It records through a `Run`, which a plain loop drives."""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from kinetoscope.clock.clock import Clock, SystemClock
from kinetoscope.errors import SettingsError
from kinetoscope.live.own_folder import LIVE_BYTES_MAX
from kinetoscope.recording.contract import RunSettings, check_callbacks, check_kind, check_state
from kinetoscope.recording.loop import Batches, Loop
from kinetoscope.recording.marker import RECORDING_ACTIONS, AskedMarker, Marker, ProfilerMarkers
from kinetoscope.recording.process import this_process
from kinetoscope.recording.run import Run
from kinetoscope.recording.schedule import ProfilerAction, Schedule
from kinetoscope.training.state import RunState, State

T = TypeVar("T")


class AnyProfiler:
    """What every face of the profiler has: ``state.profiler`` for callbacks, and what `active_profiler` gives."""

    run: Run
    """Used by sources and handlers (see `RunInside`), and by whatever drives the run in place of the plain loop."""
    _find_marker: Callable[[AskedMarker], Marker]

    @property
    def state(self) -> Any:
        """The run's state."""
        return self.run.state

    @property
    def trace_handlers(self) -> list[Any]:
        """The trace handlers. May be set to one or several."""
        return self.run.handlers

    @trace_handlers.setter
    def trace_handlers(self, handlers: Any) -> None:
        self.run.set_handlers(check_callbacks(handlers, "trace_handlers"))

    def marker(
        self,
        name: str,
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
    ) -> Marker:
        """The marker of that name, created once.

        Records while the action is among ``actions``; with the two flags, also an instant where a span begins or ends;
        ``categories`` are words to filter by in a viewer. Asked again without options it is the same marker; asked with
        other options, the first ones stay, and a warning says so once. Of markers that nobody holds, the latest some
        thousands are remembered: for what changes from batch to batch, use one name and a counter.
        """
        return self._find_marker((name, actions, record_instant_on_start, record_instant_on_finish, categories))

    def get_action(self) -> ProfilerAction:
        """The action of the current batch."""
        return self.run.get_action()

    def schedule(self, state: RunState) -> ProfilerAction:
        """The schedule's answer for ``state``; SKIP, with one report in the log, if it raises or answers nonsense."""
        return self.run.schedule(state)

    def record_chrome_json_trace_file(self, filepath: str | os.PathLike[str]) -> None:
        """Adds a file of Chrome JSON events, such as one of Kineto's, to the cycle that is being recorded.

        The file is kept by a second link (or a copy, where there can be none), so the caller may delete it. Nothing
        is read in the training thread. A file that is not there is reported in the log.
        """
        self.run.take_over_file(Path(filepath))

    @property
    def resumption_batch_idx(self) -> int:
        """The batch of its epoch at which the run was resumed; 0 if it was not. A schedule's skip counts from it."""
        return self.run.resumption_batch

    @resumption_batch_idx.setter
    def resumption_batch_idx(self, batch: int) -> None:
        self.run.resume_at(batch)


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
    - ``trace_handlers``: one `TraceHandler` or several; they get what was recorded.
    - ``state``: the run's state; one is made if none is given, with ``run_name`` as its name.
    - ``sources``: what records by itself (`TorchProfiler`, `SystemProfiler`).
    - ``upload_to``: the URL below which finished files are uploaded, such as ``s3://bucket/runs``; anything fsspec
      knows. A process beside training does it, and `close` waits for it. Without it, only files whose remote name has a
      scheme of its own are uploaded.
    - ``strict``: raise errors of sources and handlers instead of logging them and going on.
    - ``grace_s``: how long saving may take after SIGTERM, in seconds; ``close_timeout_s``: at a regular close.
    - ``live_folder``: where what is not yet saved is kept, so that a kill loses none of it; by default ``live`` in the
      run folder of the first handler that has one. False keeps it in memory. ``live_bytes_max`` bounds it: what is
      recorded beyond that, until something is saved, is dropped, and the trace says how much. Windows that could not be
      saved stay as well, and are tried again; before anything is dropped, the oldest of these goes.
    - ``quiet``: do not say at the end of the run what was recorded and where. Otherwise rank 0 prints that line on
      stderr if it is a terminal, and else logs it. A run that recorded nothing always says why.
    - ``clock``: where time comes from; for tests.

    Raises `SettingsError` for an argument that cannot work.
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
        close_timeout_s: float = 300.0,
        live_folder: str | os.PathLike[str] | bool | None = None,
        live_bytes_max: int = LIVE_BYTES_MAX,
        quiet: bool = False,
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
        close_timeout_s: float = 300.0,
        live_folder: str | os.PathLike[str] | bool | None = None,
        live_bytes_max: int = LIVE_BYTES_MAX,
        quiet: bool = False,
        clock: Clock | None = None,
    ) -> None:
        positional = list(arguments)
        if positional and hasattr(positional[0], "timestamp"):
            state = positional.pop(0)
        schedule = positional.pop(0) if positional else schedule
        trace_handlers = positional.pop(0) if positional else trace_handlers
        if positional:
            raise SettingsError(f"A Profiler takes a state, a schedule and trace handlers, not also {positional[0]!r}.")
        settings = RunSettings(
            schedule=schedule,
            upload_to=upload_to,
            strict=strict,
            grace_s=grace_s,
            close_timeout_s=close_timeout_s,
            live_folder=live_folder,
            live_bytes_max=live_bytes_max,
            is_quiet=quiet,
        )
        state = _checked_state(state, run_name)
        state.profiler = self
        markers = ProfilerMarkers(clock or SystemClock())
        self._find_marker = markers.find
        sources = check_callbacks(sources, "sources")
        handlers = check_callbacks(trace_handlers, "trace_handlers")
        self.run = Run(self, settings, markers, state, sources, handlers)
        self._loop = Loop(self.run, state)

    def batches(self, iterable: Iterable[T], *, length: int | None = None) -> Batches[T]:
        """An iterable over the batches of one epoch: records the wait for each and the batch itself as spans.

        ``length`` is the number of batches, taken from ``len(iterable)`` if it has one; a schedule needs it to save
        at the epoch's last batch. Inside a batch, or inside `eval`, the batches are an evaluation's: they are recorded
        as such, and not counted.
        """
        return Batches(self._loop, iterable, length)

    def step(self, *, samples: int = 0, tokens: int = 0) -> None:
        """Ends a batch of ``samples`` samples and ``tokens`` tokens, in a loop that does not use `batches`.

        The wait for a torch DataLoader is recorded as in `batches`. In a loop that uses `batches`, this only says how
        many samples and tokens the batch had.
        """
        self._loop.step(samples, tokens)

    def epoch(self, length: int | None = None) -> contextlib.AbstractContextManager[None]:
        """A context around one epoch of ``length`` batches, in a loop that uses `step`."""
        return self._loop.epoch(length)

    def eval(self) -> contextlib.AbstractContextManager[None]:
        """A context around an evaluation: a span, and so are its batches if `batches` gives them.

        Inside a training batch it is recorded as that batch is. Between batches only the evaluation's own span is
        recorded: its batches, markers and torch operators are not. Nothing in it counts as a batch of the run.
        """
        return self._loop.evaluation()

    def start(self) -> Self:
        """Begins the run: what ``with profiler:`` does on entry.

        Raises what a source or handler raises while it sets up, and `ProfilerStateError` if this profiler was used
        before or another one is active.
        """
        self._loop.start()
        return self

    def close(self) -> None:
        """Saves what was recorded, waits for it to be written, and lets go of every thread and hook.

        Ctrl-C meanwhile ends the waiting. What is not saved by then stays in the live folder, for another `close` or
        for ``kinetoscope recover``.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self.start()
        self.run.is_held = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run.is_held = False
        self.run.close(clean=kind is None)


def _checked_state(state: Any, run_name: str | None) -> Any:
    """The state that was given, or one of that name."""
    if run_name is not None:
        check_kind(run_name, "run_name", (str,), "a text")
    if state is None:
        return State(run_name=run_name or "run")
    check_state(state)
    return state
