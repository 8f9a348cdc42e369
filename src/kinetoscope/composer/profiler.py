"""composer: the Profiler, under Composer's module path. A Trainer's events flow in; our engine records."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kinetoscope.composer.callback import TrainerCallback
from kinetoscope.composer.engine_markers import EngineMarkers
from kinetoscope.composer.json_trace_handler import JSONTraceHandler
from kinetoscope.composer.remote import logger_store
from kinetoscope.composer.system_profiler import SystemProfiler
from kinetoscope.composer.torch_profiler import TorchProfiler
from kinetoscope.errors import ProfilerStateError, SettingsError
from kinetoscope.recording import profiler as engine
from kinetoscope.recording.action import ProfilerAction
from kinetoscope.recording.marker import RECORDING_ACTIONS, Marker
from kinetoscope.training.wording import missing_options

__all__ = ["Profiler"]

_log = logging.getLogger("kinetoscope")


class Profiler(engine.Profiler, TrainerCallback):
    """Records what a Composer Trainer does, by a schedule, and hands each finished cycle to its trace handlers.

        profiler = Profiler(cyclic_schedule(warmup=1, active=4), [JSONTraceHandler()])
        trainer = Trainer(..., profiler=profiler)

    - ``schedule``: a function from the Trainer's State to a `ProfilerAction`, such as `cyclic_schedule`'s.
    - ``trace_handlers``: one `TraceHandler` or several; they get what was recorded.
    - ``sys_prof_cpu``, ``sys_prof_memory``, ``sys_prof_disk``, ``sys_prof_net``: whether a `SystemProfiler` records
      these; ``sys_prof_stats_thread_interval_seconds``: seconds between two readings.
    - ``torch_prof_*``: the settings of a `TorchProfiler`, which records if any of ``torch_prof_record_shapes``,
      ``torch_prof_profile_memory``, ``torch_prof_with_stack`` and ``torch_prof_with_flops`` is on.
    - ``strict``: raise errors of sources and handlers instead of logging them and going on.

    The Trainer binds the profiler to its State, calls it at every event and closes it.
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
        if torch_prof_memory_filename is not None:
            _check_memory_options(
                torch_prof_record_shapes=torch_prof_record_shapes,
                torch_prof_profile_memory=torch_prof_profile_memory,
                torch_prof_with_stack=torch_prof_with_stack,
            )
        handlers = list(trace_handlers) if isinstance(trace_handlers, Sequence) else [trace_handlers]
        remote = [torch_prof_remote_file_name, torch_prof_memory_remote_file_name]
        for handler in handlers:
            if isinstance(handler, JSONTraceHandler):
                remote += [handler.remote_file_name, handler.merged_trace_remote_file_name]
        self.remote_filenames: list[str] = [name for name in remote if name]
        """The remote names as they were given: for those with a scheme the Trainer makes loggers that upload."""
        self._callbacks: list[Any] = []
        if sys_prof_cpu or sys_prof_memory or sys_prof_disk or sys_prof_net:
            self._callbacks.append(
                SystemProfiler(
                    profile_cpu=sys_prof_cpu,
                    profile_memory=sys_prof_memory,
                    profile_disk=sys_prof_disk,
                    profile_net=sys_prof_net,
                    stats_thread_interval_seconds=sys_prof_stats_thread_interval_seconds,
                )
            )
        if torch_prof_record_shapes or torch_prof_profile_memory or torch_prof_with_stack or torch_prof_with_flops:
            self._callbacks.append(
                TorchProfiler(
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
            )
        self._engine_markers = EngineMarkers(self.marker_with, lambda: self.lasting)
        self._saves_at_next_event = self._acts_at_next_event = False
        self._has_begun = False
        super().__init__(schedule, handlers, sources=self._callbacks, strict=strict)
        self.state = None

    # -- what a Trainer and its engine touch ------------------------------------------------------------------

    def bind_to_state(self, state: Any) -> None:
        """Makes ``state`` the run's, and has the engine call this profiler, its sources and its handlers, in that
        order."""
        self.renew()
        self.bind(state)
        state.profiler = self
        self.show_action()
        state.callbacks.append(self)
        state.callbacks.extend(self._callbacks)
        state.callbacks.extend(self.trace_handlers)

    def marker(
        self,
        name: str,
        actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
    ) -> Marker:
        """The marker of that name, created once; see `kinetoscope.Profiler.marker`.

        The engine's own (``event/...``) also record the batch that saves.
        """
        return self._engine_markers.get(name, actions, record_instant_on_start, record_instant_on_finish, categories)

    def run_event(self, event: Any, state: Any, logger: Any = None) -> None:
        """Called by the engine at each event, before the sources and handlers are. Before `bind_to_state` it does
        nothing."""
        if self.state is None:
            return
        if self._acts_at_next_event:
            self.call(self, self._act)
        name = event.value
        if name == "init":
            self.init(state, logger)
        elif name in _HANDLED:
            self.call(self, getattr(self, name), state, logger)

    def close_abandoned(self) -> None:
        """A Trainer was never closed: does what it would have done for this profiler, its sources and its handlers."""
        self.close(self.state)
        callbacks = [*self._callbacks, *self.trace_handlers]
        for callback in callbacks:
            self.call(callback, callback.close, self.state, None)
        for callback in callbacks:
            self.call(callback, callback.post_close)
        self.post_close()

    def get_action(self) -> ProfilerAction:
        """The action of the current batch; SKIP before `bind_to_state`."""
        return ProfilerAction.SKIP if self.state is None else super().get_action()

    def check_is_startable(self) -> None:
        """Raises `ProfilerStateError` before `bind_to_state`, and as `kinetoscope.Profiler.start` does."""
        if self.state is None:
            raise ProfilerStateError("Profiler.bind_to_state() comes first; a Trainer calls it: Trainer(profiler=...).")
        super().check_is_startable()

    def close(self, state: Any = None, logger: Any = None) -> None:
        if self.state is not None:
            super().close(state, logger)

    def close_if_left_out(self) -> None:
        """For handlers, which are closed after this profiler: if it still runs, the engine does not know of it."""
        if self.is_running:
            _log.warning(
                "The Profiler was taken out of the Trainer's callbacks during the run, so it was not told when batches "
                "ended. What was recorded is saved now. Leave it in the list until the Trainer is closed."
            )
            self.close()

    # -- events -----------------------------------------------------------------------------------------------

    def init(self, state: Any, logger: Any) -> None:
        """A profiler that was closed begins anew. Raises `ProfilerStateError` if another one is active."""
        self.renew()
        self.check_is_startable()
        self._has_begun = self._acts_at_next_event = self._saves_at_next_event = False
        self.remote_store = logger_store(logger)

    def after_load(self, state: Any, logger: Any) -> None:
        """The run may have been resumed: a schedule's skip counts from there, in this epoch."""
        self.resumption_batch_idx = state.timestamp.batch_in_epoch

    def fit_start(self, state: Any, logger: Any) -> None:
        """The first time, recording begins: handlers and sources are set up by now. No window outlives a fit."""
        if self._has_begun:  # and was interrupted in mid-window, perhaps
            self._finish(state, logger)
            self.save_window()
            self._engine_markers.forget_open()
        else:
            self._has_begun = True
            self.begin_run()
        self.next_action()
        self.apply_action()

    def epoch_start(self, state: Any, logger: Any) -> None:
        self.next_action()
        self.apply_action()

    def batch_end(self, state: Any, logger: Any) -> None:
        """The timestamp counts the batch already. The sources come next; what follows from it waits for them."""
        before = self.next_action()
        self._saves_at_next_event = before is ProfilerAction.ACTIVE_AND_SAVE
        self._acts_at_next_event = True

    def epoch_end(self, state: Any, logger: Any) -> None:
        """The timestamp is in the next epoch already. A stretch that the epoch's end breaks off is saved."""
        before = self.next_action()
        self._saves_at_next_event = self._acts_at_next_event = self.is_broken_off(before)

    def fit_end(self, state: Any, logger: Any) -> None:
        """What was recorded is on disk when `Trainer.fit` returns, in mid-window too."""
        self._finish(state, logger)
        self.save_window()
        if not self.drain(self.close_timeout_s):
            _log.error("Saving takes longer than %g seconds; it goes on beside what follows.", self.close_timeout_s)

    def end_run(self, clean: bool) -> None:
        """While closing: the sources hand over what they have; the Trainer tells handlers itself."""
        self._finish(self.state, None)

    def close_handlers(self) -> None:
        """While closing: what was recorded is on disk; the Trainer closes handlers and sources next."""
        self.drain_or_give_up()

    def post_close(self) -> None:
        """Everything of ours is closed: waits for uploads."""
        if self.state is not None:
            self.finish_uploads()

    # -- inside -----------------------------------------------------------------------------------------------

    def _act(self) -> None:
        """What a batch's or an epoch's end leads to, once the sources have had their event."""
        self._acts_at_next_event = False
        if self._saves_at_next_event:
            self._saves_at_next_event = False
            self.save_window()
        self.apply_action()

    def _finish(self, state: Any, logger: Any) -> None:
        if self._acts_at_next_event:
            self._act()
        for source in self.sources:
            self.call(source, source.fit_end, state, logger)


_HANDLED = frozenset(
    {
        "after_load",
        "fit_start",
        "epoch_start",
        "batch_end",
        "epoch_end",
        "fit_end",
    }
)


def _check_memory_options(**options: bool) -> None:
    if needed := missing_options(options):
        raise SettingsError(f"torch_prof_memory_filename needs {needed} as well.")
