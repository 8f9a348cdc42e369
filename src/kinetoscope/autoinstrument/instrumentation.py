"""Profiling of unmodified scripts: a run for each training run of a process, from its first steps to its end."""

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from kinetoscope.api import profile
from kinetoscope.autoinstrument.evaluation_rule import EvaluationRule
from kinetoscope.autoinstrument.first_window import FirstWindow
from kinetoscope.autoinstrument.private_names import register_thread_exit
from kinetoscope.autoinstrument.settings import DEFAULT_NUM_STEPS, AutoSettings, CountBy, read_settings
from kinetoscope.autoinstrument.step_rule import FirstSteps, StepRule
from kinetoscope.autoinstrument.training_detector import NO_ACTIVITY, TrainingDetector
from kinetoscope.autoinstrument.unrecorded import print_line, report_unrecorded
from kinetoscope.core.job.ranks import detect_ranks
from kinetoscope.hooks.loader_watch import DataLoaderWatch
from kinetoscope.hooks.patching import ReplacedMethod
from kinetoscope.hooks.phase_hooks import BackwardWatch, release_hooks, reserve_hooks
from kinetoscope.hooks.training_safe import training_safe
from kinetoscope.native import why_not_recorded
from kinetoscope.pulse.pulse_recorder import TrainingFacts
from kinetoscope.recording.markers.schedule import CyclePlan, PulseOnly
from kinetoscope.recording.profiler import Profiler, active_profiler

if TYPE_CHECKING:
    from kinetoscope.autoinstrument.trial import Trial
    from kinetoscope.recording.driver import Driver

_log = logging.getLogger("kinetoscope")
_PACKAGE = __name__.partition(".")[0]
_REFUSES_THREADS = sys.version_info[:2] == (3, 12)
"""Python 3.12 refuses new threads while it joins the existing ones at exit; other versions do not."""


MAX_WINDOWS = 3
"""Training runs of a process that record a window each; later ones keep their pulse only."""

PULSE_ONLY = f"a process records a window of each of its first {MAX_WINDOWS} training runs, and the steps of all"
MAX_RUNS = 200
"""Training runs of a process that get a folder: a search over more would fill the disk with pulses of 1 MiB."""


class AutoInstrumentation:
    """Detect and record the training runs of this process, one after the other, without raising into them.

    They end by `end`, or with the process.

    Args:
        make: Returns the Profiler of the n-th run, given n and the number of steps that have ended.
        give_up: Called with the reason if a run is not recorded.
        count_by: End of a step; None chooses by what the process does.
        ends_with_process: Whether the run ends at the exit of the process.
        command: Name of the command that started the process.
        trial: A start of `kinetoscope try`.
    """

    def __init__(
        self,
        make: Callable[[int, int], Profiler],
        give_up: Callable[[str], object],
        *,
        count_by: CountBy | None = None,
        ends_with_process: bool = False,
        command: str = "",
        trial: "Trial | None" = None,
    ) -> None:
        self._make, self._report_given_up = make, give_up
        self._trial = trial
        self._count_by: CountBy | None = count_by
        self._ends_with_process, self._command = ends_with_process, command
        self._removals: list[Callable[[], object]] = []
        self._driver: Driver | None = None
        self._rule: StepRule | None = None
        self._has_given_up = self._is_start_due = False
        self._detector = TrainingDetector()
        self._backward_watch = BackwardWatch(self._detector.on_backward, lambda: None)
        self._next_run: FirstSteps | None = None
        """Training run that has started while the training thread was within autograd."""
        self._num_runs = 0
        self.has_recorded = False
        self._leader: Callable[[], object] = lambda: None
        self._loader_watch = DataLoaderWatch(self._fetch_before_start)
        self._thread = threading.main_thread().ident
        self._training_thread = threading.main_thread()
        self._start_lock = threading.Lock()  # of concurrently training threads, the first one is recorded
        self._evaluations = EvaluationRule()
        self._num_backward = 0
        self._count_backward: Callable[[], int] = lambda: 0
        self._has_gradients: Callable[[], bool] = lambda: True
        self._num_stepped = self._stepped_ns = 0
        self._last_fetched: weakref.ref[Any] | None = None  # kept alive for its callback
        self._iterator_freed_callback = training_safe(self._on_iterator_freed)

    def watch(self) -> None:
        """Wait for the first step of an optimizer; torch must be loaded."""
        register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
        if register is None:
            _log.warning(
                "This torch has no hooks for optimizer steps, so nothing is recorded. torch 2.0 or newer is needed."
            )
            return
        self._has_gradients = sys.modules["torch"].is_grad_enabled
        self._loader_watch.install()
        self._backward_watch.install()
        reserve_hooks()
        self._removals.append(register(training_safe(self._on_optimizer_step)).remove)
        self._watch_scaler()

    def _watch_scaler(self) -> None:
        """Count the steps that a GradScaler skips because gradients are not finite."""
        scaler_class = getattr(getattr(sys.modules["torch"], "amp", None), "GradScaler", None)
        if scaler_class is None:
            return
        stepped = training_safe(self._on_optimizer_step)

        def step(
            original: Callable[..., Any], scaler: object, optimizer: object, *arguments: Any, **options: Any
        ) -> Any:
            num_before = self._num_stepped
            result = original(scaler, optimizer, *arguments, **options)
            if self._num_stepped == num_before:
                stepped(optimizer)
            return result

        self._removals.append(ReplacedMethod(scaler_class, "step", step).restore)

    # -- events of the training loop --

    def _fetch_before_start(self, fetch: Callable[[Any], Any], iterator: Any) -> Any:
        """Fetch a batch before the profiler has started, which this may start."""
        if not self._start_lock.locked():
            self._thread = threading.get_ident()
        has_many_steps = self._detector.on_fetch() and self._count_by != "optimizer"
        if self._is_start_due:
            training_safe(self._start_and_end_first_step)()
        elif has_many_steps:
            training_safe(self._start)()
        self._evaluations.is_evaluation(iterator, has_gradients=self._has_gradients())
        return fetch(iterator)

    def _start_and_end_first_step(self) -> None:
        """Start the profiler after an optimizer step on a thread of autograd, and end that step."""
        self._is_start_due = False
        self._start()
        self._step(1)

    def _on_optimizer_step(self, optimizer: object, *arguments: object) -> None:
        """Count an optimizer's step; the first one starts the profiler."""
        del arguments
        self._num_stepped += 1
        self._stepped_ns = time.monotonic_ns()
        if self._driver is None:
            self._detector.on_optimizer_step()
        is_on_loop_thread = self._identify_loop_thread()
        self._leader = weakref.ref(optimizer)
        if self._driver is None and not self._has_given_up:
            if is_on_loop_thread:
                self._start()
            else:
                self._is_start_due = True
        if self._driver is not None and self._rule is not None:
            self._count_optimizer_step(self._driver, self._rule, optimizer, is_on_loop_thread)

    def _identify_loop_thread(self) -> bool:
        """Return whether this thread runs the training loop; update which one does."""
        ident = threading.get_ident()
        if self._driver is None and not self._detector.num_fetches and _is_python_thread(ident):
            self._thread = ident  # without fetches, optimizer steps identify the thread that trains
        if ident == self._thread:
            return True
        if self._rule is None or not self._is_new_training_thread():
            return False  # a thread of autograd, in a backward pass
        self._set_training_thread()
        if self._driver is not None:
            self._driver.follow_thread()
        return True

    def _count_optimizer_step(
        self, driver: "Driver", rule: StepRule, optimizer: object, is_on_loop_thread: bool
    ) -> None:
        """End the steps of the run that end with this optimizer step, or start the next run."""
        num_steps = rule.on_optimizer_step(optimizer)
        if rule.next_run is not None:
            self._next_run, self._rule = rule.next_run, rule.next_run.rule
        if not is_on_loop_thread:
            return
        if self._next_run is not None:
            self._start_next_run()
            return
        self._evaluations.mark_trained()
        if driver.is_evaluating:
            driver.on_evaluation(False)  # the end of the evaluation may have been missed, or it may have been none
        self._step(num_steps)

    def _on_fetch(self, iterator: object) -> None:
        """Handle a fetch on the loop's thread: a step may end, and an evaluation start or end."""
        if self._next_run is not None:
            self._start_next_run()
        driver, rule = self._driver, self._rule
        if driver is None or rule is None:
            return
        self._detect_backward(rule)
        self._step(rule.on_fetch())
        if self._last_fetched is None or self._last_fetched() is not iterator:
            self._last_fetched = weakref.ref(iterator, self._iterator_freed_callback)
        is_evaluation = self._evaluations.is_evaluation(iterator, has_gradients=self._has_gradients())
        if is_evaluation is not driver.is_evaluating:
            driver.on_evaluation(is_evaluation)

    def _detect_backward(self, rule: StepRule) -> None:
        """Report backward passes since the last call to the step rule and the evaluation rule."""
        num_backward = self._count_backward()
        if self._num_backward != num_backward:
            self._num_backward = num_backward
            self._evaluations.mark_trained()
            rule.on_backward()

    def _step(self, num_steps: int) -> None:
        """End a number of steps of the recorded run."""
        if self._driver is not None:
            for _ in range(num_steps):
                self._driver.on_step()
                if self._trial is not None:
                    self._trial.handle_step(self._driver, self._leader())

    def _on_iterator_freed(self, _: object) -> None:
        """End the loop when its iterator is freed: by `break`, or without a last fetch that returns nothing.

        accelerate and Lightning end loops like this. A garbage collection may free the iterator at any moment, also
        within Kinetoscope's code; then the next fetch ends the loop.
        """
        if self._rule is None or threading.get_ident() != self._thread or _is_called_from(_PACKAGE, sys._getframe(1)):
            return
        if self._driver is not None:
            self._driver.on_evaluation(False)
            self._end_last_step()
            self._driver.on_loop_end()

    def _end_last_step(self) -> None:
        """End the step that no fetch ends, when the loop is over. It ended with its last optimizer step.

        A script may do anything after its loop, such as an evaluation, while the loop's iterator still exists.
        """
        if self._driver is None or self._rule is None or self._next_run is not None:
            return
        self._detect_backward(self._rule)
        num_steps = self._rule.on_fetch()
        if num_steps == 1 and self._stepped_ns:
            self._driver.on_step(end_ns=self._stepped_ns)
        else:
            self._step(num_steps)

    # -- runs --

    def _start(self) -> None:
        """Start recording, unless another thread has or the process has another Profiler."""
        if not self._start_lock.acquire(blocking=False):
            return
        if active_profiler() is not None:
            self._give_up("this process has a Profiler of its own")
            return
        ends_ns, has_loader = self._detector.step_ends_ns, self._detector.num_fetches > 0
        self._backward_watch.remove()
        if self._start_run(ends_ns):
            self._rule = StepRule(self._count_by, has_loader=has_loader, by_backward=bool(ends_ns))
            self._loader_watch.remove()
            if self._ends_with_process:
                self._end_with_process()

    def _start_next_run(self) -> None:
        """Close the run, and start that of the training run whose first steps have ended."""
        first, self._next_run = self._next_run, None
        if self._driver is None or first is None:
            return
        if self._trial is not None:
            self._trial.handle_run_end(self._driver, self._leader())
        self._driver.end(search=False)  # a search takes seconds and would block training
        if self._num_runs == MAX_RUNS:
            self._give_up(f"this process has trained {MAX_RUNS} times; further training runs get no folder")
        else:
            self._start_run(first.ends_ns)

    def _start_run(self, ends_ns: list[int]) -> bool:
        """Start a run after the steps that ended at these times; return whether it is recorded."""
        self._driver = None
        self._num_runs += 1
        try:
            driver = self._make(self._num_runs, len(ends_ns)).driver
            facts = describe_run(self._num_runs, self._leader(), self._command)
            driver.start(fetch_listener=self._on_fetch, past_step_ends_ns=ends_ns, facts=facts)
        except Exception as error:
            self._give_up(str(error))
            return False
        if not driver.is_running:  # the log has the reason
            self._stop_watching()
            return False
        self._set_training_thread()
        self.has_recorded = True
        self._driver = driver
        self._count_backward, self._num_backward = driver.num_backward_passes, 0
        return True

    def _set_training_thread(self) -> None:
        self._thread, self._training_thread = threading.get_ident(), threading.current_thread()

    def _is_new_training_thread(self) -> bool:
        """Return whether this thread trains in place of the former one, which has ended."""
        return not self._training_thread.is_alive() and _is_python_thread(threading.get_ident())

    def _end_with_process(self) -> None:
        """Register the end of the run at the exit of the process, before Python refuses new threads."""
        register = None if _REFUSES_THREADS else register_thread_exit.find()
        if register is not None:
            register(training_safe(self._close_at_exit))
        else:  # the active run ends at exit by itself, after this
            atexit.register(training_safe(self._end_last_step))

    def _give_up(self, reason: str) -> None:
        self._stop_watching()
        self._report_given_up(reason)
        if self._trial is not None:
            self._trial.report_unmeasurable(reason)

    def _stop_watching(self) -> None:
        self._has_given_up = True
        self._driver = self._rule = None  # else each further training run would report another reason
        self._loader_watch.remove()
        self._backward_watch.remove()

    def end(self) -> None:
        """End the run, and stop watching."""
        training_safe(self._close)()
        self._loader_watch.remove()
        self._backward_watch.remove()
        while self._removals:
            self._removals.pop()()
        self._rule = self._last_fetched = None
        release_hooks()

    @property
    def unrecorded_reason(self) -> str:
        """Reason why no training run was found; "" if one was recorded, or another reason was reported."""
        return "" if self._num_runs or self._has_given_up else self._detector.describe()

    def _close_at_exit(self) -> None:
        # Python waits for that thread, unless it is a daemon; the run ends after that.
        if self._trains_on_other_thread():
            atexit.register(training_safe(lambda: self._trains_on_other_thread() or self._end_last_step()))
            return
        with contextlib.suppress(KeyboardInterrupt):  # as in `Run.save_at_exit`
            self._close()

    def _trains_on_other_thread(self) -> bool:
        return self._training_thread.is_alive() and self._training_thread is not threading.main_thread()

    def _close(self) -> None:
        if self._driver is not None:
            self._driver.on_evaluation(False)
            self._end_last_step()
            if self._rule is not None and self._next_run is None:
                self._step(self._rule.finish())
            if self._trial is not None:
                self._trial.handle_run_end(self._driver, self._leader())
            self._driver.end(at_exit=True)


def watch_process() -> None:
    """Wait for training in this process; torch is imported, and further calls do nothing."""
    global _training
    if _training is not None:
        return
    settings = read_settings()
    if reason := why_not_recorded():
        if settings.pid:  # once for all processes of the command
            report_unrecorded(settings, f"nothing is recorded: {reason}")
        else:
            _report_given_up(reason)
        return
    trial = _make_trial(settings)
    _training = AutoInstrumentation(
        ProcessRuns(settings).make,
        _report_given_up,
        count_by=settings.count_by,
        ends_with_process=True,
        command=settings.command,
        trial=trial,
    )
    import torch  # noqa: F401 - a process that trains has it

    if trial is not None:
        trial.prepare()

    _training.watch()
    atexit.register(training_safe(_report_end), settings)


def _make_trial(settings: AutoSettings) -> "Trial | None":
    if settings.trial is None:
        return None
    from kinetoscope.autoinstrument.trial import Trial

    return Trial(settings.trial)


class ProcessRuns:
    """Make the profilers of the training runs of this process, by the settings of `kinetoscope run`."""

    def __init__(self, settings: AutoSettings) -> None:
        self._settings = settings
        self._first: Driver | None = None
        """The first run, whose folder contains the others. The folder has a name when the run starts."""

    def make(self, number: int = 1, num_past_steps: int = 0) -> Profiler:
        """Return the profiler of the n-th run, which has ``num_past_steps`` steps behind it."""
        settings, folder = self._settings, None if self._first is None else self._first.folder
        skip = max(0, settings.after - num_past_steps)
        num_steps = DEFAULT_NUM_STEPS if settings.num_steps is None else settings.num_steps
        schedule = FirstWindow(
            CyclePlan(skip_first=skip, wait=0, warmup=1, active=num_steps, repeat=1),
            "run",
            "Pass a smaller --after.",
            is_timed=settings.diagnose and settings.num_steps is None,
        )
        records = settings.trial is None or settings.trial.records
        is_pulse_only = number > MAX_WINDOWS or not records
        profiler = profile(
            settings.out if folder is None else f"{folder}/{number}",
            schedule=PulseOnly(PULSE_ONLY) if is_pulse_only else schedule,
            first_step=num_past_steps,
            diagnose=settings.diagnose,
            modules=settings.modules,
            report=settings.report and not is_pulse_only,
            torch=records,
            system=records,
            hangs=settings.trial is None,
            quiet=number > 1 or settings.trial is not None,
            slow_steps=settings.slow_steps,
            profile_memory=settings.diagnose,
        )
        self._first = self._first or profiler.driver
        return profiler


def describe_run(number: int, optimizer: object, command: str = "") -> TrainingFacts:
    """Return facts that distinguish a training run of a process: its optimizer, and its number of parameters."""
    groups: list[dict[str, Any]] = getattr(optimizer, "param_groups", [])
    num_parameters = None
    with contextlib.suppress(Exception):  # such as parameters without a shape yet
        num_parameters = sum(parameter.numel() for group in groups for parameter in group["params"])
    rate = groups[0].get("lr") if groups else None
    name = "" if optimizer is None else type(optimizer).__name__
    learning_rate = float(rate) if isinstance(rate, int | float) else None
    return TrainingFacts(number, name, num_parameters or None, learning_rate, command)


def _report_end(settings: AutoSettings) -> None:
    """Report at the exit of a process that has recorded nothing which signs of training it had.

    A launcher and the workers of a DataLoader have none; of these, only the command's own process reports.
    """
    reason = "" if _training is None else _training.unrecorded_reason
    if reason and (reason != NO_ACTIVITY or os.getpid() == settings.pid):
        report_unrecorded(settings, reason)


def _report_given_up(reason: str) -> None:
    if detect_ranks().rank == 0:
        nothing = "nothing more" if _training is not None and _training.has_recorded else "nothing"
        print_line(f"{nothing} is recorded: {reason}")


_training: AutoInstrumentation | None = None


def _is_python_thread(ident: int) -> bool:
    """Return whether Python, and not a C++ library, has started a thread."""
    return any(thread.ident == ident for thread in threading.enumerate())


def _is_called_from(package: str, frame: FrameType | None) -> bool:
    """Return whether a package's code has called, at any depth, the function of this frame."""
    while frame is not None and (frame := frame.f_back) is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            return True
    return False
