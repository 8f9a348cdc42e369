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
from kinetoscope.autoinstrument.private_names import exit_of_threads
from kinetoscope.autoinstrument.settings import DEFAULT_NUM_STEPS, AutoSettings, CountBy, settings_of
from kinetoscope.autoinstrument.sightings import NOTHING_SEEN, Sightings
from kinetoscope.autoinstrument.step_rule import FirstSteps, StepRule
from kinetoscope.autoinstrument.unseen import print_line, report_unseen
from kinetoscope.core.job.ranks import detect_ranks
from kinetoscope.hooks.loader_watch import DataLoaderWatch
from kinetoscope.hooks.patching import ReplacedMethod
from kinetoscope.hooks.phase_hooks import BackwardWatch, release_hooks, reserve_hooks
from kinetoscope.hooks.training_safe import training_safe
from kinetoscope.native import why_not_recorded
from kinetoscope.pulse.own_pulse import TrainingFacts
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
MAX_TRAININGS = 200
"""Training runs of a process that get a folder: a search over more would fill the disk with pulses of 1 MiB."""


class UnmodifiedTraining:
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
        self._make, self._tell_given_up = make, give_up
        self._trial = trial
        self._count_by: CountBy | None = count_by
        self._ends_with_process, self._command = ends_with_process, command
        self._removals: list[Callable[[], object]] = []
        self._driver: Driver | None = None
        self._rule: StepRule | None = None
        self._has_given_up = self._is_due = False
        self._seen = Sightings()
        self._backward_watch = BackwardWatch(self._seen.backward_passed, lambda: None)
        self._following: FirstSteps | None = None
        """A training run that has started, while the thread that trains was within autograd."""
        self._num_trainings = 0
        self.has_recorded = False
        self._leader: Callable[[], object] = lambda: None
        self._loader_watch = DataLoaderWatch(self._before_the_first_step)
        self._thread = threading.main_thread().ident
        self._trainer = threading.main_thread()
        self._has_begun = threading.Lock()  # of threads that train at the same time, the first one is recorded
        self._evaluations = EvaluationRule()
        self._num_backward = 0
        self._count_backward: Callable[[], int] = lambda: 0
        self._has_gradients: Callable[[], bool] = lambda: True
        self._num_stepped = self._stepped_ns = 0
        self._last_fetched: weakref.ref[Any] | None = None  # kept, since it calls back
        self._iterator_gone = training_safe(self._loop_left)

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
        self._removals.append(register(training_safe(self._optimizer_stepped)).remove)
        self._watch_scaler()

    def _watch_scaler(self) -> None:
        """A step that a GradScaler leaves out, since gradients are not finite, is one of the training all the same."""
        kind = getattr(getattr(sys.modules["torch"], "amp", None), "GradScaler", None)
        if kind is None:
            return
        stepped = training_safe(self._optimizer_stepped)

        def step(
            original: Callable[..., Any], scaler: object, optimizer: object, *arguments: Any, **options: Any
        ) -> Any:
            num_before = self._num_stepped
            result = original(scaler, optimizer, *arguments, **options)
            if self._num_stepped == num_before:
                stepped(optimizer)
            return result

        self._removals.append(ReplacedMethod(kind, "step", step).restore)

    # -- what is seen of it --

    def _before_the_first_step(self, fetch: Callable[[Any], Any], iterator: Any) -> Any:
        if not self._has_begun.locked():
            self._thread = threading.get_ident()
        has_many_steps = self._seen.fetches() and self._count_by != "optimizer"
        if self._is_due:
            training_safe(self._begin_and_end_first)()
        elif has_many_steps:
            training_safe(self._begin)()
        self._evaluations.is_evaluation(iterator, has_gradients=self._has_gradients())
        return fetch(iterator)

    def _begin_and_end_first(self) -> None:
        self._is_due = False
        self._begin()
        self._step(1)

    def _optimizer_stepped(self, optimizer: object, *arguments: object) -> None:
        del arguments
        self._num_stepped += 1
        self._stepped_ns = time.monotonic_ns()
        if self._driver is None:
            self._seen.optimizer_stepped()
        if self._driver is None and not self._seen.num_fetches and _is_pythons(threading.get_ident()):
            self._thread = threading.get_ident()  # nothing else has told which thread trains
        is_elsewhere = threading.get_ident() != self._thread  # on a thread of autograd's, in a backward pass
        if is_elsewhere and self._rule is not None and self._is_next_training():
            self._follow_thread()
            if self._driver is not None:
                self._driver.follow_thread()
            is_elsewhere = False
        self._leader = weakref.ref(optimizer)
        if self._driver is None and not self._has_given_up:
            if is_elsewhere:
                self._is_due = True
            else:
                self._begin()
        if self._driver is None or self._rule is None:
            return
        num_steps = self._rule.optimizer_stepped(optimizer)
        if self._rule.following is not None:
            self._following, self._rule = self._rule.following, self._rule.following.rule
        if is_elsewhere:
            return
        if self._following is not None:
            self._begin_following()
            return
        self._evaluations.note_trained()
        if self._driver.is_evaluating:
            self._driver.on_evaluation(False)  # its end may not have been seen, or it may have been none
        self._step(num_steps)

    def _fetches(self, iterator: object) -> None:
        """On the loop's thread: a step may end, and an evaluation begin or end."""
        if self._following is not None:
            self._begin_following()
        driver, rule = self._driver, self._rule
        if driver is None or rule is None:
            return
        self._find_backward(rule)
        self._step(rule.fetches())
        if self._last_fetched is None or self._last_fetched() is not iterator:
            self._last_fetched = weakref.ref(iterator, self._iterator_gone)
        is_evaluation = self._evaluations.is_evaluation(iterator, has_gradients=self._has_gradients())
        if is_evaluation is not driver.is_evaluating:
            driver.on_evaluation(is_evaluation)

    def _find_backward(self, rule: StepRule) -> None:
        num_backward = self._count_backward()
        if self._num_backward != num_backward:
            self._num_backward = num_backward
            self._evaluations.note_trained()
            rule.backward_passed()

    def _step(self, num_steps: int) -> None:
        if self._driver is not None:
            for _ in range(num_steps):
                self._driver.on_step()
                if self._trial is not None:
                    self._trial.step_ended(self._driver, self._leader())

    def _loop_left(self, _: object) -> None:
        """The iterator that was asked last is gone, so the loop over it has ended: by `break` perhaps, or without a
        last fetch that finds nothing, as accelerate's and Lightning's do. A garbage collection may let go of it at any
        moment, also within our own code; then the next fetch tells."""
        if self._rule is None or threading.get_ident() != self._thread or _is_within(_PACKAGE, sys._getframe(1)):
            return
        if self._driver is not None:
            self._driver.on_evaluation(False)
            self._end_last_step()
            self._driver.on_loop_end()

    def _end_last_step(self) -> None:
        """End the step that no fetch ends, when the loop is over. It ended with its last optimizer step.

        A script may do anything after its loop, such as an evaluation, while the loop's iterator still exists.
        """
        if self._driver is None or self._rule is None or self._following is not None:
            return
        self._find_backward(self._rule)
        num_steps = self._rule.fetches()
        if num_steps == 1 and self._stepped_ns:
            self._driver.on_step(end_ns=self._stepped_ns)
        else:
            self._step(num_steps)

    # -- its profiler --

    def _begin(self) -> None:
        if not self._has_begun.acquire(blocking=False):
            return
        if active_profiler() is not None:
            self._give_up("this process has a Profiler of its own")
            return
        ends_ns, has_loader = self._seen.step_ends_ns, self._seen.num_fetches > 0
        self._backward_watch.remove()
        if self._start_run(ends_ns):
            self._rule = StepRule(self._count_by, has_loader=has_loader, by_backward=bool(ends_ns))
            self._loader_watch.remove()
            if self._ends_with_process:
                self._end_with_process()

    def _begin_following(self) -> None:
        """Close the run, and start that of the training whose first steps are over."""
        first, self._following = self._following, None
        if self._driver is None or first is None:
            return
        if self._trial is not None:
            self._trial.run_ends(self._driver, self._leader())
        self._driver.end(search=False)  # a search takes seconds, for which the training would wait
        if self._num_trainings == MAX_TRAININGS:
            self._give_up(f"this process has trained {MAX_TRAININGS} times; further training runs get no folder")
        else:
            self._start_run(first.ends_ns)

    def _start_run(self, ends_ns: list[int]) -> bool:
        """Start a run after the steps that ended at these times."""
        self._driver = None
        self._num_trainings += 1
        try:
            driver = self._make(self._num_trainings, len(ends_ns)).driver
            facts = describe_training(self._num_trainings, self._leader(), self._command)
            driver.start(fetch_listener=self._fetches, past_step_ends_ns=ends_ns, facts=facts)
        except Exception as error:
            self._give_up(str(error))
            return False
        if not driver.is_running:  # one line in the log has given the reason
            self._stop_watching()
            return False
        self._follow_thread()
        self.has_recorded = True
        self._driver = driver
        self._count_backward, self._num_backward = driver.num_backward_passes, 0
        return True

    def _follow_thread(self) -> None:
        self._thread, self._trainer = threading.get_ident(), threading.current_thread()

    def _is_next_training(self) -> bool:
        """Whether this thread trains now, and not the one that did, which has ended."""
        return not self._trainer.is_alive() and _is_pythons(threading.get_ident())

    def _end_with_process(self) -> None:
        register = None if _REFUSES_THREADS else exit_of_threads.find()
        if register is not None:
            register(training_safe(self._close_at_exit))
        else:  # the run, which is active, ends at exit by itself, after this
            atexit.register(training_safe(self._end_last_step))

    def _give_up(self, why: str) -> None:
        self._stop_watching()
        self._tell_given_up(why)

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
    def what_was_seen(self) -> str:
        """A sentence on what was seen of a training run that was not recorded; "" if one was, or a reason was given."""
        return "" if self._num_trainings or self._has_given_up else self._seen.describe()

    def _close_at_exit(self) -> None:
        if self._trains_elsewhere():  # Python waits for that thread, unless it is a daemon; the run ends after that
            atexit.register(training_safe(lambda: self._trains_elsewhere() or self._end_last_step()))
            return
        with contextlib.suppress(KeyboardInterrupt):  # as in `Run.save_at_exit`
            self._close()

    def _trains_elsewhere(self) -> bool:
        return self._trainer.is_alive() and self._trainer is not threading.main_thread()

    def _close(self) -> None:
        if self._driver is not None:
            self._driver.on_evaluation(False)
            self._end_last_step()
            if self._rule is not None and self._following is None:
                self._step(self._rule.finish())
            if self._trial is not None:
                self._trial.run_ends(self._driver, self._leader())
            self._driver.end()


def watch_process() -> None:
    """Waits for a training in this process, once torch is loaded; once in a process, however often it is asked."""
    global _training
    if _training is None and (reason := why_not_recorded()):
        _tell_given_up(reason)
    elif _training is None:
        settings = settings_of()
        trial = _make_trial(settings)
        _training = UnmodifiedTraining(
            ProcessRuns(settings).make,
            _tell_given_up,
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

    def __init__(self, asked: AutoSettings) -> None:
        self._asked = asked
        self._folder: Path | None = None
        """That of the first run; the others are in it."""

    def make(self, number: int = 1, num_over: int = 0) -> Profiler:
        """Return the profiler of the n-th run, of which ``num_over`` steps are over."""
        asked = self._asked
        skip = max(0, asked.after - num_over)
        num_steps = DEFAULT_NUM_STEPS if asked.num_steps is None else asked.num_steps
        schedule = FirstWindow(
            CyclePlan(skip_first=skip, wait=0, warmup=1, active=num_steps, repeat=1),
            "run",
            "Pass a smaller --after.",
            is_timed=asked.diagnose and asked.num_steps is None,
        )
        records = asked.trial is None or asked.trial.records
        is_pulse_only = number > MAX_WINDOWS or not records
        profiler = profile(
            asked.out if self._folder is None else f"{self._folder}/{number}",
            schedule=PulseOnly(PULSE_ONLY) if is_pulse_only else schedule,
            first_step=num_over,
            diagnose=asked.diagnose,
            report=asked.report and not is_pulse_only,
            torch=records,
            system=records,
            hangs=asked.trial is None,
            quiet=number > 1 or asked.trial is not None,
            slow_steps=asked.slow_steps,
            profile_memory=asked.diagnose,
        )
        self._folder = self._folder or profiler.driver.folder
        return profiler


def describe_training(number: int, optimizer: object, command: str = "") -> TrainingFacts:
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
    seen = "" if _training is None else _training.what_was_seen
    if seen and (seen != NOTHING_SEEN or os.getpid() == settings.pid):
        report_unseen(settings, seen)


def _tell_given_up(why: str) -> None:
    if detect_ranks().rank == 0:
        nothing = "nothing more" if _training is not None and _training.has_recorded else "nothing"
        print_line(f"{nothing} is recorded: {why}")


_training: UnmodifiedTraining | None = None


def _is_pythons(ident: int) -> bool:
    """Whether Python has started a thread, and not a library in C++."""
    return any(thread.ident == ident for thread in threading.enumerate())


def _is_within(package: str, frame: FrameType | None) -> bool:
    """Whether code of a package has called, at any depth, what runs in this frame."""
    while frame is not None and (frame := frame.f_back) is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            return True
    return False
