"""Profiling of unmodified scripts: a run for each training in a process, from its first steps to its end."""

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
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
"""Python 3.12 starts no thread any more when it waits for those that there are; others do."""


MAX_WINDOWS = 3
"""Training runs of a process that record a window each; later ones keep their pulse only."""

PULSE_ONLY = f"a process records a window of each of its first {MAX_WINDOWS} training runs, and the steps of all"
MAX_RUNS = 200
"""Training runs of a process that get a folder: a search over more would fill the disk with pulses of 1 MiB."""


class AutoInstrumentation:
    """The training runs of this process, one after the other. Nothing here raises into them.

    ``make`` returns the Profiler of the n-th run, of which so many steps are over. ``give_up`` is called with the
    reason if there is none. They end by `end`, or with the process.
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
        """A training run that has started, while the thread that trains was within autograd."""
        self._num_runs = 0
        self.has_recorded = False
        self._leader: Callable[[], object] = lambda: None
        self._loader_watch = DataLoaderWatch(self._fetch_before_start)
        self._thread = threading.main_thread().ident
        self._training_thread = threading.main_thread()
        self._start_lock = threading.Lock()  # of threads that train at the same time, the first one is recorded
        self._evaluations = EvaluationRule()
        self._num_backward = 0
        self._count_backward: Callable[[], int] = lambda: 0
        self._has_gradients: Callable[[], bool] = lambda: True
        self._num_stepped = self._stepped_ns = 0
        self._last_fetched: weakref.ref[Any] | None = None  # kept, since it calls back
        self._iterator_freed_callback = training_safe(self._on_iterator_freed)

    def watch(self) -> None:
        """Waits for the first step of an optimizer. Torch must be loaded."""
        register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
        if register is None:
            _log.warning("This torch has no hooks for steps of optimizers, so nothing is recorded. It has since 2.0.")
            return
        self._has_gradients = sys.modules["torch"].is_grad_enabled
        self._loader_watch.install()
        self._backward_watch.install()
        reserve_hooks()
        self._removals.append(register(training_safe(self._on_optimizer_step)).remove)
        self._watch_scaler()

    def _watch_scaler(self) -> None:
        """A step that a GradScaler leaves out, since gradients are not finite, is one of the training all the same."""
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

    # -- what is seen of it --

    def _fetch_before_start(self, fetch: Callable[[Any], Any], iterator: Any) -> Any:
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
        self._is_start_due = False
        self._start()
        self._step(1)

    def _on_optimizer_step(self, optimizer: object, *arguments: object) -> None:
        del arguments
        self._num_stepped += 1
        self._stepped_ns = time.monotonic_ns()
        if self._driver is None:
            self._detector.on_optimizer_step()
        if self._driver is None and not self._detector.num_fetches and _is_python_thread(threading.get_ident()):
            self._thread = threading.get_ident()  # nothing else has told which thread trains
        is_elsewhere = threading.get_ident() != self._thread  # on a thread of autograd's, in a backward pass
        if is_elsewhere and self._rule is not None and self._is_new_training_thread():
            self._set_training_thread()
            if self._driver is not None:
                self._driver.follow_thread()
            is_elsewhere = False
        self._leader = weakref.ref(optimizer)
        if self._driver is None and not self._has_given_up:
            if is_elsewhere:
                self._is_start_due = True
            else:
                self._start()
        if self._driver is None or self._rule is None:
            return
        num_steps = self._rule.on_optimizer_step(optimizer)
        if self._rule.next_run is not None:
            self._next_run, self._rule = self._rule.next_run, self._rule.next_run.rule
        if is_elsewhere:
            return
        if self._next_run is not None:
            self._start_next_run()
            return
        self._evaluations.mark_trained()
        if self._driver.is_evaluating:
            self._driver.on_evaluation(False)  # its end may not have been seen, or it may have been none
        self._step(num_steps)

    def _on_fetch(self, iterator: object) -> None:
        """On the loop's thread: a step may end, and an evaluation begin or end."""
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
        num_backward = self._count_backward()
        if self._num_backward != num_backward:
            self._num_backward = num_backward
            self._evaluations.mark_trained()
            rule.on_backward()

    def _step(self, num_steps: int) -> None:
        if self._driver is not None:
            for _ in range(num_steps):
                self._driver.on_step()
                if self._trial is not None:
                    self._trial.handle_step(self._driver, self._leader())

    def _on_iterator_freed(self, _: object) -> None:
        """The iterator that was asked last is gone, so the loop over it has ended: by `break` perhaps, or without a
        last fetch that finds nothing, as accelerate's and Lightning's do. A garbage collection may let go of it at any
        moment, also within our own code; then the next fetch tells."""
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

    # -- its profiler --

    def _start(self) -> None:
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
        """Close the run, and start that of the training whose first steps are over."""
        first, self._next_run = self._next_run, None
        if self._driver is None or first is None:
            return
        if self._trial is not None:
            self._trial.handle_run_end(self._driver, self._leader())
        self._driver.end(search=False)  # a search takes seconds, for which the training would wait
        if self._num_runs == MAX_RUNS:
            self._give_up(f"this process has trained {MAX_RUNS} times; further training runs get no folder")
        else:
            self._start_run(first.ends_ns)

    def _start_run(self, ends_ns: list[int]) -> bool:
        """Start a run after the steps that ended at these times."""
        self._driver = None
        self._num_runs += 1
        try:
            driver = self._make(self._num_runs, len(ends_ns)).driver
            facts = describe_run(self._num_runs, self._leader(), self._command)
            driver.start(fetch_listener=self._on_fetch, past_step_ends_ns=ends_ns, facts=facts)
        except Exception as error:
            self._give_up(str(error))
            return False
        if not driver.is_running:  # one line in the log has given the reason
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
        """Whether this thread trains now, and not the one that did, which has ended."""
        return not self._training_thread.is_alive() and _is_python_thread(threading.get_ident())

    def _end_with_process(self) -> None:
        register = None if _REFUSES_THREADS else register_thread_exit.find()
        if register is not None:
            register(training_safe(self._close_at_exit))
        else:  # the run, which is active, ends at exit by itself, after this
            atexit.register(training_safe(self._end_last_step))

    def _give_up(self, reason: str) -> None:
        self._stop_watching()
        self._report_given_up(reason)

    def _stop_watching(self) -> None:
        self._has_given_up = True
        self._driver = self._rule = None  # else each further training run would be another reason
        self._loader_watch.remove()
        self._backward_watch.remove()

    def end(self) -> None:
        """Ends it, and all watching."""
        training_safe(self._close)()
        self._loader_watch.remove()
        self._backward_watch.remove()
        while self._removals:
            self._removals.pop()()
        self._rule = self._last_fetched = None
        release_hooks()

    @property
    def unrecorded_reason(self) -> str:
        """A sentence on what was seen of a training run that was not recorded; "" if one was, or a reason was given."""
        return "" if self._num_runs or self._has_given_up else self._detector.describe()

    def _close_at_exit(self) -> None:
        if (
            self._trains_on_other_thread()
        ):  # Python waits for that thread, unless it is a daemon; the run ends after that
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
            self._driver.end()


def watch_process() -> None:
    """Waits for a training in this process, once torch is loaded; once in a process, however often it is asked."""
    global _training
    if _training is None and (reason := why_not_recorded()):
        _report_given_up(reason)
    elif _training is None:
        settings = read_settings()
        trial = _make_trial(settings)
        _training = AutoInstrumentation(
            ProcessRuns(settings).make,
            _report_given_up,
            count_by=settings.count_by,
            ends_with_process=True,
            command=settings.command,
            trial=trial,
        )
        import torch  # noqa: F401 - who trains has it

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
    """The profilers of the training runs of this process, as `kinetoscope run` was asked for them."""

    def __init__(self, settings: AutoSettings) -> None:
        self._settings = settings
        self._folder: Path | None = None
        """That of the first run; the others are in it."""

    def make(self, number: int = 1, num_past_steps: int = 0) -> Profiler:
        """Return the profiler of the n-th run, of which ``num_past_steps`` steps are over."""
        settings = self._settings
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
            settings.out if self._folder is None else f"{self._folder}/{number}",
            schedule=PulseOnly(PULSE_ONLY) if is_pulse_only else schedule,
            first_step=num_past_steps,
            diagnose=settings.diagnose,
            report=settings.report and not is_pulse_only,
            torch=records,
            system=records,
            hangs=settings.trial is None,
            quiet=number > 1 or settings.trial is not None,
            slow_steps=settings.slow_steps,
            profile_memory=settings.diagnose,
        )
        self._folder = self._folder or profiler.driver.folder
        return profiler


def describe_run(number: int, optimizer: object, command: str = "") -> TrainingFacts:
    """Return what tells a training run of a process from the others: its optimizer, and how much that trains."""
    groups: list[dict[str, Any]] = getattr(optimizer, "param_groups", [])
    num_parameters = None
    with contextlib.suppress(Exception):  # of parameters without a shape yet, say
        num_parameters = sum(parameter.numel() for group in groups for parameter in group["params"])
    rate = groups[0].get("lr") if groups else None
    name = "" if optimizer is None else type(optimizer).__name__
    learning_rate = float(rate) if isinstance(rate, int | float) else None
    return TrainingFacts(number, name, num_parameters or None, learning_rate, command)


def _report_end(settings: AutoSettings) -> None:
    """At the end of a process that has recorded nothing, say what was looked for.

    A launcher and the workers of a DataLoader see nothing: only the process of the command itself says so then.
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
    """Whether Python has started a thread, and not a library in C++."""
    return any(thread.ident == ident for thread in threading.enumerate())


def _is_called_from(package: str, frame: FrameType | None) -> bool:
    """Whether code of a package has called, at any depth, what runs in this frame."""
    while frame is not None and (frame := frame.f_back) is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            return True
    return False
