"""Profiler under Composer's module path. The events of a Trainer drive a run of our engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from kinetoscope.composer.callback import TrainerCallback
from kinetoscope.composer.engine_markers import EngineMarkers
from kinetoscope.composer.json_trace_handler import JSONTraceHandler
from kinetoscope.composer.remote import TrainerLogger, make_logger_store
from kinetoscope.composer.system_profiler import SystemProfiler
from kinetoscope.composer.torch_profiler import TorchProfiler
from kinetoscope.composer.trainer_loop import TrainerLoop
from kinetoscope.core.clock.clock import SystemClock
from kinetoscope.core.job.event import Event
from kinetoscope.core.job.state import RunState, State, TrainerState
from kinetoscope.core.text.wording import format_missing_options
from kinetoscope.errors import ProfilerStateError, SettingsError
from kinetoscope.recording.markers.marker import ProfilerMarkers
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.profiler import AnyProfiler
from kinetoscope.recording.run.lifecycle import RunLifecycle
from kinetoscope.recording.run.settings import RunSettings, check_callbacks

__all__ = ["Profiler"]


class Profiler(AnyProfiler, TrainerCallback):
    """Records a training run of a Composer Trainer by a schedule, and hands each finished cycle to its trace handlers.

        profiler = Profiler(cyclic_schedule(warmup=1, active=4), [JSONTraceHandler()])
        trainer = Trainer(..., profiler=profiler)

    The Trainer binds the profiler to its State, calls it at every event and closes it. Files are redacted if `redact`
    is set before.

    A `SystemProfiler` records if any of ``sys_prof_cpu``, ``sys_prof_memory``, ``sys_prof_disk`` and ``sys_prof_net``
    is on. ``sys_prof_stats_thread_interval_seconds`` is the time between two readings. ``torch_prof_*`` are the
    settings of a `TorchProfiler`, which records if any of ``torch_prof_record_shapes``, ``torch_prof_profile_memory``,
    ``torch_prof_with_stack`` and ``torch_prof_with_flops`` is on. ``schedule`` is a function from the Trainer's State
    to a `ProfilerAction`, such as `cyclic_schedule`'s. ``trace_handlers`` is one `TraceHandler` or several. With
    ``strict``, errors of sources and handlers are raised instead of logged.

    Raises `SettingsError`, a ValueError, for an argument that cannot work.
    """

    def __init__(
        self,
        schedule: Callable[[Any], Any],
        trace_handlers: Any,
        sys_prof_cpu: bool = True,
        sys_prof_memory: bool = False,
        sys_prof_disk: bool = False,
        sys_prof_net: bool = False,
        sys_prof_stats_thread_interval_seconds: float = 0.5,
        torch_prof_folder: str = "{run_name}/torch_traces",
        torch_prof_filename: str = "rank{rank}.{batch}.pt.trace.json",
        torch_prof_remote_file_name: str | None = "{run_name}/torch_traces/rank{rank}.{batch}.pt.trace.json",
        torch_prof_memory_filename: str | None = None,
        torch_prof_memory_remote_file_name: (
            str | None
        ) = "{run_name}/torch_memory_traces/rank{rank}.{batch}.pt.memory_trace.html",
        torch_prof_overwrite: bool = False,
        torch_prof_use_gzip: bool = False,
        torch_prof_record_shapes: bool = False,
        torch_prof_profile_memory: bool = True,
        torch_prof_with_stack: bool = False,
        torch_prof_with_flops: bool = True,
        torch_prof_num_traces_to_keep: int = -1,
        *,
        strict: bool = False,
    ) -> None:
        memory_needs = torch_prof_record_shapes, torch_prof_profile_memory, torch_prof_with_stack
        if torch_prof_memory_filename is not None:
            _check_memory_options(*memory_needs)
        handlers = list(trace_handlers) if isinstance(trace_handlers, Sequence) else [trace_handlers]
        torch_remote = torch_prof_remote_file_name, torch_prof_memory_remote_file_name
        self.remote_filenames: list[str] = [name for name in (*torch_remote, *_list_remote_names(handlers)) if name]
        """The remote names as given. For a name with a scheme, the Trainer creates a logger that uploads."""
        self._callbacks: list[Any] = []
        system = sys_prof_cpu, sys_prof_memory, sys_prof_disk, sys_prof_net
        if any(system):
            self._callbacks.append(SystemProfiler(*system, sys_prof_stats_thread_interval_seconds))
        if any(memory_needs) or torch_prof_with_flops:
            torch_profiler = TorchProfiler(
                folder=torch_prof_folder,
                filename=torch_prof_filename,
                remote_file_name=torch_prof_remote_file_name,
                memory_filename=torch_prof_memory_filename,
                memory_remote_file_name=torch_prof_memory_remote_file_name,
                overwrite=torch_prof_overwrite,
                use_gzip=torch_prof_use_gzip,
                record_shapes=torch_prof_record_shapes,
                profile_memory=torch_prof_profile_memory,
                with_stack=torch_prof_with_stack,
                with_flops=torch_prof_with_flops,
                num_traces_to_keep=torch_prof_num_traces_to_keep,
            )
            self._callbacks.append(torch_profiler)
        self._settings = RunSettings(schedule=schedule, strict=strict, close_timeout_s=300.0)
        self._markers = ProfilerMarkers(SystemClock())
        self._engine_markers = EngineMarkers(self._markers.get, lambda: self.lifecycle.services.lasting)
        self._trainer_state: TrainerState | None = None
        self._find_marker = self._engine_markers.find
        self._make_run(State(), check_callbacks(handlers, "trace_handlers"))

    def _make_run(self, state: RunState, handlers: list[Any]) -> None:
        """Create a run. Each Trainer gets its own; without a Trainer, the profiler has a run that never starts."""
        self.lifecycle: RunLifecycle = RunLifecycle(
            self, self._settings, self._markers, state, self._callbacks, handlers
        )
        self._loop = TrainerLoop(self.lifecycle, self._engine_markers)

    # -- what a Trainer and its engine touch ------------------------------------------------------------------

    def bind_to_state(self, state: TrainerState) -> None:
        """Start a run with this ``state``, and let the engine call this profiler, its sources and its handlers.

        It calls them in this order. If it was bound to another Trainer before, that one no longer calls them, and its
        run is closed and saved if it is still open.
        """
        if self._trainer_state is not None:
            self._unbind(self._trainer_state)
        self._make_run(state, self.trace_handlers)
        self._trainer_state = state
        state.profiler = self
        self.lifecycle.windows.update_listeners()
        state.callbacks.extend(self._list_callbacks())

    def _unbind(self, state: TrainerState) -> None:
        if self.lifecycle.is_running:
            self.lifecycle.close_for_next_run()
        callback_ids = set(map(id, self._list_callbacks()))
        state.callbacks[:] = [callback for callback in state.callbacks if id(callback) not in callback_ids]

    def _list_callbacks(self) -> list[Any]:
        return [self, *self._callbacks, *self.trace_handlers]

    def run_event(self, event: Event, state: RunState, logger: TrainerLogger | None = None) -> None:
        """Handle an event, before the sources and handlers. Do nothing before `bind_to_state`. Called by the engine."""
        if self._trainer_state is None:
            return
        if event.value == "init":
            self.init(state, logger)
        else:
            self._loop.run_event(event.value)

    def init(self, state: RunState, logger: TrainerLogger | None) -> None:
        """Start a new run if the profiler was closed. Raises `ProfilerStateError` if another profiler is active."""
        if self.lifecycle.is_closed:
            self._make_run(self.lifecycle.state, self.trace_handlers)
        self.lifecycle.prepare_to_start()
        self.run.remote_store = make_logger_store(logger)

    def close(self, state: RunState | None = None, logger: TrainerLogger | None = None) -> None:
        """Save what was recorded and wait until it is written. The engine closes sources and handlers next."""
        if self._trainer_state is not None and self.lifecycle.is_new:  # its setup has failed, or no fit was started
            self.lifecycle.close_failed_setup()
        elif self._trainer_state is not None:
            self.lifecycle.close(clean=True)

    def post_close(self) -> None:
        """Wait for uploads; sources and handlers are closed by now."""
        if self._trainer_state is not None:
            self.lifecycle.finish_uploads()

    def start(self) -> NoReturn:
        """Raise `ProfilerStateError`, because the Trainer starts this profiler."""
        raise ProfilerStateError(
            "Only a Trainer can start this Profiler, through bind_to_state(): Trainer(profiler=...). In a loop of your "
            "own, use kinetoscope.Profiler."
        )

    # -- what a user touches ----------------------------------------------------------------------------------

    @property
    def redact(self) -> Callable[[str], str] | None:
        """The function from a string to its replacement, as for `kinetoscope.Profiler`; None by default.

        Set it before the Trainer gets the profiler; later it raises `ProfilerStateError`.
        """
        return self._settings.redact

    @redact.setter
    def redact(self, function: Callable[[str], str] | None) -> None:
        if self._trainer_state is not None:
            raise ProfilerStateError("redact is set too late: this Profiler has a Trainer already. Set it before.")
        self._settings = replace(self._settings, redact=function)
        self._make_run(self.lifecycle.state, self.trace_handlers)

    @property
    def state(self) -> Any:
        """The Trainer's state; None before `bind_to_state`."""
        return self._trainer_state

    def get_action(self) -> ProfilerAction:
        """Return the action of the current batch; SKIP before `bind_to_state`."""
        return self.lifecycle.get_action() if self._trainer_state is not None else ProfilerAction.SKIP


def _check_memory_options(record_shapes: bool, profile_memory: bool, with_stack: bool) -> None:
    needs = {
        "torch_prof_record_shapes": record_shapes,
        "torch_prof_profile_memory": profile_memory,
        "torch_prof_with_stack": with_stack,
    }
    if missing := format_missing_options(needs):
        raise SettingsError(f"torch_prof_memory_filename needs {missing} as well.")


def _list_remote_names(handlers: list[Any]) -> Iterator[str | None]:
    for handler in handlers:
        if isinstance(handler, JSONTraceHandler):
            yield from (handler.remote_file_name, handler.merged_trace_remote_file_name)
