"""Profiler with a schedule: records windows of steps, and passes each to ``on_trace_ready``."""

# torch.autograd does not export all that its own profiler uses.
# pyright: reportPrivateImportUsage=false

import atexit
import logging
import os
import warnings
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

from torch.autograd.profiler import KinetoStepTracker
from torch.profiler import ProfilerAction

import kinetoscope.torch.private_names as private_names
from kinetoscope.errors import ProfilerStateError
from kinetoscope.native import require_extension
from kinetoscope.recording.markers.process import TerminationHandler
from kinetoscope.torch.execution_trace import ExecutionTraceObserver
from kinetoscope.torch.kineto_profile import KinetoProfile
from kinetoscope.torch.record_function import record_function
from kinetoscope.torch.schedule import (
    DEVICE_STOPPED,
    NONE,
    RECORD,
    RECORD_AND_SAVE,
    TRANSITIONS,
    WARMUP,
    KinetoCall,
    Schedule,
    Transition,
    check_action,
    is_exhausted,
    record_everything,
)
from kinetoscope.torch.session import Activity
from kinetoscope.torch.tensorboard_trace_handler import BackgroundExport, TensorboardTraceHandler

PROFILER_STEP_NAME = "ProfilerStep"

_log = logging.getLogger("kinetoscope")


class profile(KinetoProfile):  # noqa: N801 - torch's name
    """Record torch operators and kernels with Kineto, in windows that a schedule chooses.

    ``schedule`` gives each step its action; without one, everything from start to stop is one window. After each
    window, ``on_trace_ready`` is called with this object. ``activities`` may contain members of ProfilerActivity and
    dicts from such a member to a list of activity types; by default all supported activities are recorded.
    ``record_shapes``, ``profile_memory``, ``with_stack``, ``with_flops`` and ``with_modules`` record more about each
    operator. ``acc_events`` keeps the events of all windows for the tables. ``execution_trace_observer`` is started and
    stopped with each window. ``custom_trace_id_callback`` returns an id for each window. ``post_processing_timeout_s``
    limits the time for making events; after it, events are missing. ``use_cuda`` is deprecated and has no effect.

    >>> from kinetoscope.torch import profile, schedule
    >>> with profile(schedule=schedule(wait=1, warmup=1, active=3)) as profiler:
    ...     for _ in range(5):
    ...         profiler.step()

    Raises:
        SettingsError: Wrong activities.
        ScheduleError: The schedule returns something else than actions.
    """

    def __init__(
        self,
        *,
        activities: Iterable[Activity] | None = None,
        schedule: Schedule | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        if use_cuda is not None:
            warnings.warn("use_cuda is deprecated and has no effect; use activities.", FutureWarning, stacklevel=2)
        super().__init__(
            activities=activities,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer
            or ExecutionTraceObserver.build_execution_trace_obs_from_env(),
            acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
        )
        self.schedule: Schedule = schedule or record_everything
        self.record_steps: bool = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num: int = 0
        self.step_rec_fn: record_function | None = None
        self.current_action: ProfilerAction = check_action(self.schedule(0), 0)
        self._prev_schedule_action = self.current_action
        self._stopped = False
        self._must_stop = False
        self._busy = False  # during a transition, when the profiler must not be stopped
        self._init_process_state()

    def _init_process_state(self) -> None:
        """Make the objects that belong to this process."""
        self._background = BackgroundExport()
        # A weak reference, because atexit and the signal handler would keep the profiler alive otherwise.
        # No WeakMethod: it prints an AttributeError at the end of a process whose profiler is a global.
        this = weakref.ref(self)
        self._save_if_alive = lambda: True if (profiler := this()) is None else profiler._save_at_exit()
        self._termination = TerminationHandler(self._save_if_alive)
        weakref.finalize(self, self._remove_exit_handlers, self._termination, self._save_if_alive)
        # Only Kineto's daemon needs the count of steps. Kineto reads this variable once, when torch is imported.
        self._counts_steps = bool(os.environ.get("KINETO_USE_DAEMON"))
        KinetoStepTracker.init_step_count(PROFILER_STEP_NAME)

    def __getstate__(self) -> dict[str, Any]:
        process_state = ("_background", "_save_if_alive", "_termination", "_counts_steps")
        return {name: value for name, value in super().__getstate__().items() if name not in process_state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._init_process_state()

    @property
    def action_map(self) -> dict[tuple[ProfilerAction, ProfilerAction | None], list[Callable[[], Any]]]:
        """Methods called at each change of action, in torch's form; a new dict each time."""
        return {key: self._list_calls(transition) for key, transition in TRANSITIONS.items()}

    def _list_calls(self, transition: Transition) -> list[Callable[[], Any]]:
        error_calls = [] if transition.error is None else [partial(_raise_state_error, transition.error)]
        return error_calls + [getattr(self, call) for call in transition.calls]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except Exception as failure:
            if error is None:
                raise
            _log.error("The torch profiler failed to stop after %r: %s", error, failure, exc_info=failure)
            error.add_note(f"The torch profiler failed to stop as well: {failure!r}")
        finally:
            KinetoStepTracker.erase_step_count(PROFILER_STEP_NAME)
            if self.execution_trace_observer:
                self.execution_trace_observer.cleanup()

    def start(self) -> None:
        """Start with the action of the current step.

        Without a call of `stop`, the window is delivered when the profiler is dropped or the process ends.

        Raises:
            ProfilerStateError: Another profiler is running.
            NativeExtensionError: The native extension, which writes the results, cannot be used.
        """
        require_extension()
        if self._has_started and is_exhausted(self.schedule, self.step_num):
            warnings.warn(
                f"Nothing will be recorded: all cycles of the schedule were over at step {self.step_num}, where this "
                "start() continues. Make a new profiler, or a schedule with repeat=0.",
                stacklevel=2,
            )
        self._termination.install()
        atexit.register(self._save_if_alive)
        try:
            self._transit_action(NONE, self.current_action)
            self._has_started = True
        except BaseException:
            self._remove_exit_handlers(self._termination, self._save_if_alive)
            raise
        self._stopped = False
        self._open_step_span()

    def stop(self) -> None:
        """Stop the profiler and deliver the window that is being recorded; a second call does nothing."""
        if self._stopped:
            return
        if self.current_action is not NONE:
            self._check_started()
        self._session.check_thread()
        self._close_step_span()
        self._stopped = True
        if self.record_steps and not self.step_num and self.current_action in (NONE, WARMUP):
            warnings.warn(
                "The profiler has a schedule, but step() was never called: nothing is recorded.", stacklevel=2
            )
        action, self.current_action = self.current_action, self._prev_schedule_action
        try:
            self._transit_action(action, None)
        finally:
            try:
                self._background.close()
            finally:
                self._remove_exit_handlers(self._termination, self._save_if_alive)

    def step(self) -> None:
        """Signal that the next step starts."""
        number = self.step_num + 1
        action = self.schedule(number)
        is_quiet = action is NONE or (action is RECORD and not self.record_steps)
        if is_quiet and action is self.current_action and not self._stopped:
            self.step_num, self._prev_schedule_action = number, action
        else:
            self._begin_step(number, check_action(action, number))
        if self._counts_steps:
            KinetoStepTracker.increment_step(PROFILER_STEP_NAME)

    def follow_schedule(self) -> None:
        """Query the schedule about the current step again, and change the action if it differs now.

        For schedules that depend on more than the number of the step, such as on an epoch that has just started.
        """
        action = check_action(self.schedule(self.step_num), self.step_num)
        if action is not self.current_action:
            self._begin_step(self.step_num, action)

    def finish_window(self) -> None:
        """End a window before its last step and deliver it; do nothing if nothing is being recorded.

        The action is then NONE until the next `step` or `follow_schedule`.
        """
        if not self._session.recording:
            return
        self._session.check_thread()
        self._close_step_span()
        self.current_action = self._prev_schedule_action = NONE
        self._transit_action(RECORD_AND_SAVE, NONE)

    def end_step(self) -> None:
        """End the current step's span now, so that the work before the next `step` is not part of it."""
        self._close_step_span()

    def _begin_step(self, number: int, scheduled: ProfilerAction) -> None:
        """End the current step and make the transition to the action of the next one."""
        if self._stopped:
            raise ProfilerStateError(
                "The profiler has been stopped, so step() has no window to continue. Start it again first."
            )
        self._session.check_thread()
        self._close_step_span()
        before, cycle_ended = self.current_action, self._prev_schedule_action is RECORD_AND_SAVE
        self.step_num, self._prev_schedule_action = number, scheduled
        self.current_action = self._find_action(before, scheduled, cycle_ended)
        try:
            self._transit_action(before, self.current_action)
        finally:  # a handler may raise while the next window is already being recorded
            self._open_step_span()

    def _find_action(self, before: ProfilerAction, scheduled: ProfilerAction, cycle_ended: bool) -> ProfilerAction:
        """Return the scheduled action; DEVICE_STOPPED for the rest of a cycle in which the device stopped."""
        if DEVICE_STOPPED is None or scheduled is NONE:
            return scheduled
        if before is DEVICE_STOPPED:
            return scheduled if cycle_ended else DEVICE_STOPPED
        if self.use_device is None or before not in (WARMUP, RECORD) or not private_names.device_has_stopped():
            return scheduled
        warnings.warn(
            f"The device stopped collecting before step {self.step_num}; recording continues with the next cycle.",
            stacklevel=4,
        )
        return DEVICE_STOPPED

    def _transit_action(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        """Make the calls of a change of action; None is the exit of the profiler."""
        transition = TRANSITIONS.get((before, after), Transition())
        if transition.error:
            _raise_state_error(transition.error)
        if transition.warning:
            warnings.warn(transition.warning, stacklevel=4)
        self._busy = True
        try:
            self._run_calls(transition.calls)
        finally:
            self._busy = False
        if self._must_stop and after is not None:
            self.stop()  # then the deferred signal ends the process

    def _run_calls(self, calls: tuple[KinetoCall, ...]) -> None:
        """Make the calls of a transition, also those after a handler that raises."""
        for position, call in enumerate(calls):
            try:
                getattr(self, call)()
            except BaseException:
                if call is KinetoCall.DELIVER:  # the handler raised: the schedule continues
                    self._run_calls(calls[position + 1 :])
                raise

    def _trace_ready(self) -> None:
        """Deliver the finished window to the handler, in the background if possible."""
        if self._results is None:
            return
        handler = self.on_trace_ready
        if isinstance(handler, TensorboardTraceHandler) and not self._overrides_export():
            self._background.export(self._results, handler.next_path(), handler.use_python_export)
        elif self.on_trace_ready:
            self.on_trace_ready(self)

    def _overrides_export(self) -> bool:
        """Return whether a subclass or a user overrides `export_chrome_trace`, which a handler must then call."""
        return getattr(self.export_chrome_trace, "__func__", None) is not KinetoProfile.export_chrome_trace

    def __del__(self) -> None:
        session = getattr(self, "_session", None)  # None if the constructor failed
        if session is not None and session.recording and session.can_stop_here and not session.is_forked:
            warnings.warn("A torch profiler was dropped while it ran. Stop it first.", ResourceWarning, stacklevel=2)
            self._save_at_exit()

    @staticmethod
    def _remove_exit_handlers(termination: TerminationHandler, save: Callable[[], bool]) -> None:
        atexit.unregister(save)
        termination.remove()

    def _save_at_exit(self) -> bool:
        """Stop and deliver the window; return False if that must wait for the end of a transition."""
        if self._session.is_forked:
            return True
        if self._busy:
            self._must_stop = True
            return False
        try:
            self.stop()
        except ProfilerStateError as error:
            _log.error("The torch profiler could not save its window at the end: %s", error)
        except Exception as error:
            _log.error("The torch profiler could not save its window at the end: %s", error, exc_info=error)
        return True

    def end_on_thread_exit(self) -> None:
        """End the recording on its exiting thread, and the open step with it."""
        self._close_step_span()
        super().end_on_thread_exit()

    def _open_step_span(self) -> None:
        if self.record_steps and self._session.recording:
            self.step_rec_fn = record_function(f"{PROFILER_STEP_NAME}#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _close_step_span(self) -> None:
        if self.step_rec_fn is not None:
            span, self.step_rec_fn = self.step_rec_fn, None
            span.__exit__(None, None, None)


def _raise_state_error(message: str) -> None:
    raise ProfilerStateError(message)
