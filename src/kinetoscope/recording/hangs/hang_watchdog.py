"""Background thread that detects hangs of the training thread and receives requests for recordings."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from statistics import median
from types import FrameType

import msgspec

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.paths.source_files import format_frame, is_user_code, skip_profiler_frames
from kinetoscope.errors import UnsafePathError
from kinetoscope.formats.record_request import RecordRequest, read_request, request_sequence
from kinetoscope.formats.redactor import Redactor
from kinetoscope.pulse.layout import POLL_S, Phase, StallState, WakeReason
from kinetoscope.pulse.pulse_recorder import PulseRecorder
from kinetoscope.pulse.stalls import STALL_SUFFIX, StalledPhase, StallFile, ThreadStack
from kinetoscope.recording.hangs.gil_stall_stacks import GilStallStacks
from kinetoscope.recording.hangs.thread_probe import ThreadProbe
from kinetoscope.recording.private_names import all_frames
from kinetoscope.recording.process_groups import read_group_states, read_group_timeout_s
from kinetoscope.recording.window.run_redaction import redact_group

_log = logging.getLogger("kinetoscope")

HANG_VARIABLE = "KINETOSCOPE_HANG_S"
"""Environment variable with the minimum duration, in seconds, after which a phase may count as stalled."""

_MIN_LIMIT_S, _MAX_LIMIT_S = 30.0, 1e8
_MEDIANS_IN_LIMIT = 20
_MIN_STEPS, _MIN_DURATIONS, _MAX_DURATIONS = 5, 3, 512
_MAX_WAIT_S, _STARTUP_WAIT_S = 15.0, 1.0
_NEVER_NS = 1 << 62
_NUM_SAMPLES = 8
_SAVING_POLL_S = 1.0  # while a run is saved
_COMPILERS = ("torch._dynamo.convert_frame", "torch._inductor.compile_fx", "torch._inductor.async_compile")
_DEBUGGERS = ("pdb", "pydevd")  # which wait for a person
_MAX_UNREADABLE_READS = 60
_MAX_THREADS, _MAX_FRAMES, _MAX_PHASES = 64, 64, 20
_JOIN_S = 5.0
_PROFILER_THREADS = "kinetoscope"


def _read_min_limit_s() -> float:
    """Return the minimum duration of a stalled phase in seconds; the default if the variable has no positive number."""
    try:
        requested_s = float(os.environ.get(HANG_VARIABLE, _MIN_LIMIT_S))
    except ValueError:
        return _MIN_LIMIT_S
    return min(requested_s, _MAX_LIMIT_S) if requested_s > 0 else _MIN_LIMIT_S


class PhaseLimits:
    """Estimate the maximum normal duration of each phase from the steps so far."""

    def __init__(self, min_limit_s: float) -> None:
        self._min_limit_ns = round(min_limit_s * 1e9)
        self._num_steps = 0
        self._times: list[deque[int]] = [deque(maxlen=_MAX_DURATIONS) for _ in Phase]
        self._extended_ns: dict[int, int] = {}
        """Limit in nanoseconds of a phase that was found to make progress."""
        self._resumed_ns: dict[int | None, int] = {}
        """Limit in nanoseconds of a phase that was reported as stalled and then ended; the key None is the time after a
        loop."""

    def add_steps(self, num_steps: int, steps: Iterable[tuple[int, ...]]) -> None:
        """Add steps, each with the nanoseconds by phase. ``num_steps`` is the number of steps of the run so far."""
        self._num_steps = num_steps
        for by_phase in steps:
            for phase, time_ns in enumerate(by_phase):
                if time_ns:
                    self._times[phase].append(time_ns)

    def has_enough_steps(self) -> bool:
        """Return whether there were enough steps to estimate limits."""
        return self._num_steps >= _MIN_STEPS

    def has_usual_duration(self, phase: int) -> bool:
        """Return whether the phase occurred often enough to know its usual duration."""
        return len(self._times[phase]) >= _MIN_DURATIONS

    def limits_ns(self, group_timeout_s: float | None, *, is_after_loop: bool = False) -> tuple[int, ...]:
        """Return the maximum duration of each phase in nanoseconds.

        Args:
            group_timeout_s: the timeout of collectives in seconds. A limit is at most half of it.
            is_after_loop: whether `Phase.OTHER` is the time after a loop over batches.
        """
        if not self.has_enough_steps():
            return (_NEVER_NS,) * len(Phase)
        max_ns = _NEVER_NS if group_timeout_s is None else round(group_timeout_s * 1e9 / 2)
        return tuple(
            max(min(self._estimate_limit_ns(phase, is_after_loop), max_ns), self._extended_ns.get(phase, 0))
            for phase in Phase
        )

    def _estimate_limit_ns(self, phase: int, is_after_loop: bool) -> int:
        """Return the limit of a phase without extensions, in nanoseconds."""
        usual_ns = median(self._times[phase]) if self._times[phase] else 0
        return max(
            self._min_limit_ns,
            round(_MEDIANS_IN_LIMIT * usual_ns),
            self._resumed_ns.get(_limit_key(phase, is_after_loop), 0),
        )

    def extend_after_report(self, phase: int, duration_ns: int, *, is_after_loop: bool = False) -> None:
        """Raise the limit of a phase that was reported as stalled and lasted ``duration_ns`` to twice that time."""
        key = _limit_key(phase, is_after_loop)
        self._resumed_ns[key] = max(2 * duration_ns, self._resumed_ns.get(key, 0))

    def extend_while_active(self, phase: int, duration_ns: int) -> None:
        """Postpone the next probe of a phase that makes progress until it lasts twice ``duration_ns``."""
        self._extended_ns[phase] = 2 * duration_ns

    def clear_extensions(self) -> None:
        """Remove the extensions for the current phase, since it has ended."""
        self._extended_ns.clear()


def _limit_key(phase: int, is_after_loop: bool) -> int | None:
    return None if is_after_loop and phase == Phase.OTHER else phase


class HangWatchdog:
    """Detect hangs of the training thread, on a thread of its own that sleeps in C without the GIL.

    A phase is probed for two seconds (`ThreadProbe`) when it lasts longer than ``max(30 s, 20 medians)``, or half of
    the timeout of collectives. A thread that keeps executing Python is not hung. The watchdog writes the state and the
    location to the pulse, and the stacks of all threads to a file next to it. It never
    ends the process.

    Args:
        pulse: the open pulse of the run.
        ranks: the ranks of this process.
        attempt: the restart attempt.
        accept_request: called with each request for a recording that arrives in the run's folder.
        with_gil_stacks: whether to write stacks also where a thread holds the GIL.
        redactor: replaces names in what is written; None to write them unchanged.
    """

    def __init__(
        self,
        pulse: PulseRecorder,
        ranks: Ranks,
        attempt: Attempt,
        accept_request: Callable[[RecordRequest], object],
        *,
        with_gil_stacks: bool,
        redactor: Redactor | None,
    ) -> None:
        self._pulse, self._accept = pulse, accept_request
        self._training_ident, self._native_id = pulse.thread
        self._stall_file = StallFile(ranks, attempt, [])
        self._redact: Callable[[str], str] = redactor or (lambda text: text)
        self._min_limit_s = _read_min_limit_s()
        self._phase_limits = PhaseLimits(self._min_limit_s)
        self._wait_s = min(_MAX_WAIT_S, self._min_limit_s / 2)
        self._gil_stacks = GilStallStacks(pulse) if with_gil_stacks and redactor is None else None
        self._probed_since_ns = self._stalled_since_ns = 0
        """Start of the phase that was probed last, and of the phase that was found stalled; 0 without one."""
        self._is_stalled_after_loop = False
        """True if the stalled phase is the time after a loop over batches."""
        self._request = os.fsencode(pulse.request_file)
        self._sequence = request_sequence(self._request) if self._request else 0
        self._num_unreadable = 0
        self._is_over = threading.Event()
        self._report_saving: Callable[[], object] | None = None
        self._has_failed = False
        self._thread = BackgroundThread(self._run, "kinetoscope-watch")

    def start(self) -> None:
        """Start the thread."""
        self._pulse.record_stall(StallState.NONE, *self._pulse.current_phase(), self._training_ident)
        self._pulse.writer.watch(self._request)
        if self._gil_stacks is not None:
            self._gil_stacks.start()
        self._thread.try_start("Hangs are not detected, and kinetoscope record does not work")

    def watch_saving(self, report: Callable[[], object]) -> None:
        """Stop the detection, since saving is never a hang. From now on call ``report`` every second."""
        self._report_saving = report
        self._pulse.writer.stop_waiting()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._is_over.set()
        if (writer := self._pulse.writer) is not None:  # else this was called before
            writer.stop_waiting()
        self._thread.join(_JOIN_S)
        if self._gil_stacks is not None:
            self._gil_stacks.stop()

    # -- on the thread --

    def _run(self) -> None:
        """Detect hangs and read requests until `stop`."""
        while not self._is_over.is_set():
            try:
                self._update()
                if self._report_saving is not None:
                    self._report_saving()
                    self._is_over.wait(_SAVING_POLL_S)
                    continue
                wake_reason = self._wait_for_event()
                if wake_reason is WakeReason.REQUESTED:
                    self._read_request()
                elif wake_reason is WakeReason.STALLED:
                    self._probe()
            except Exception:  # such as of an audit hook: errors must not reach training
                if not self._has_failed:
                    self._has_failed = True
                    _log.exception("The hang watchdog failed and is restarted. Training continues.")
                self._is_over.wait(self._wait_s)
        with suppress(Exception):  # as above
            self._update()  # a hung phase may have resumed

    def _wait_for_event(self) -> WakeReason:
        """Sleep in C until a phase is too long or a request arrives, and return the reason for the wake-up."""
        limits = self._current_limits_ns()
        # Until limits are known, and while a phase is stalled, changes are checked more often.
        is_steady = self._phase_limits.has_enough_steps() and not self._stalled_since_ns
        wait_s = self._wait_s if is_steady else min(self._wait_s, _STARTUP_WAIT_S)
        wait_ns = round(wait_s * 1e9)
        return WakeReason(self._pulse.writer.wait(limits, self._stalled_since_ns, wait_ns, self._sequence))

    def _current_limits_ns(self) -> tuple[int, ...]:
        if self._report_saving is not None:
            return (_NEVER_NS,) * len(Phase)
        return self._phase_limits.limits_ns(read_group_timeout_s(), is_after_loop=self._pulse.is_between_loops)

    def _update(self) -> None:
        """Update the limits, and end the report of a phase that has resumed. Called at each wake-up."""
        self._phase_limits.add_steps(*self._pulse.drain_new_steps())
        phase, since_ns = self._pulse.current_phase()
        if self._pulse.thread[0] != self._training_ident:
            self._training_ident, self._native_id = self._pulse.thread
            self._pulse.record_stall(StallState.NONE, phase, since_ns, self._training_ident)
        if self._probed_since_ns not in (0, since_ns):
            if self._stalled_since_ns:
                self._report_resumed(time.monotonic_ns() - self._stalled_since_ns)
            self._probed_since_ns = self._stalled_since_ns = 0
            self._phase_limits.clear_extensions()

    def _read_request(self) -> None:
        """Read a request and accept it. An incomplete file is read again at the next wake-ups, for a minute."""
        sequence, request = request_sequence(self._request), read_request(self._request)
        if request is not None:
            self._sequence, self._num_unreadable = request.sequence, 0
            self._accept(request)
            return
        self._num_unreadable += 1
        if self._num_unreadable >= _MAX_UNREADABLE_READS:
            self._sequence, self._num_unreadable = sequence, 0

    # -- a phase that lasts too long --

    def _probe(self) -> None:
        """Sample the training thread, and report it as stalled if it makes no progress."""
        phase, since_ns = self._pulse.current_phase()
        probe = ThreadProbe(self._training_ident, self._native_id, self._pulse.writer.ping_main_thread)
        probe.add_sample()
        for _ in range(_NUM_SAMPLES):
            if (
                self._is_over.wait(POLL_S)
                or self._report_saving is not None
                or self._pulse.current_phase()[1] != since_ns
            ):
                return self._pulse.record_stall(StallState.NONE, phase, since_ns, self._training_ident)
            probe.add_sample()
            # This thread got the GIL, so no other thread holds it.
            self._pulse.record_stall(StallState.SUSPECTED, phase, since_ns, self._training_ident)
        self._probed_since_ns = since_ns
        duration_ns = time.monotonic_ns() - since_ns
        if probe.is_active():
            self._phase_limits.extend_while_active(phase, duration_ns)
            return self._pulse.record_stall(StallState.NONE, phase, since_ns, self._training_ident)
        self._stalled_since_ns = since_ns
        self._is_stalled_after_loop = self._pulse.is_between_loops and phase == Phase.OTHER
        self._report_stall(phase, since_ns, duration_ns)
        return None

    def _report_stall(self, phase: int, since_ns: int, duration_ns: int) -> None:
        """Write the location and all stacks of a stalled phase, and log them if the phase is hung."""
        frames = all_frames()
        frame = frames.get(self._training_ident)
        has_usual_duration = self._phase_limits.has_usual_duration(phase) and not self._is_stalled_after_loop
        hangs = has_usual_duration and not _is_called_by(frame, (*_COMPILERS, *_DEBUGGERS))
        location = self._redact(_find_location(frame))
        self._pulse.record_stall(
            StallState.HUNG if hangs else StallState.LONG, phase, since_ns, self._training_ident, location
        )
        unix_ns = time.time_ns()
        stalled_phase = StalledPhase(
            phase=Phase(phase).name.lower(),
            hangs=hangs,
            step=self._pulse.num_steps(),
            since_ns=unix_ns - duration_ns,
            found_ns=unix_ns,
            limit_ns=self._current_limits_ns()[phase],
            location=location,
            stacks=self._read_stacks(frames),
            groups=[redact_group(group, self._redact) for group in read_group_states()],
        )
        self._stall_file.phases.append(stalled_phase)
        del self._stall_file.phases[:-_MAX_PHASES]
        failure = self._write_file()
        _log.warning(
            "Training %s: %s has taken %.0f s%s. The stacks of all threads are in %s.",
            "hangs"
            if hangs
            else "has been stuck since its loop ended"
            if self._is_stalled_after_loop
            else "takes long",
            stalled_phase.phase.replace("_", " "),
            duration_ns / 1e9,
            f", at {location}" if location else "",
            f"no file: {failure}" if failure else self._pulse.sibling_path(STALL_SUFFIX),
        )

    def _report_resumed(self, duration_ns: int) -> None:
        """Record that the stalled phase has ended, and raise its limit."""
        stalled_phase = self._stall_file.phases[-1]
        self._stall_file.phases[-1] = msgspec.structs.replace(stalled_phase, resumed_ns=time.time_ns())
        self._write_file()
        if stalled_phase.hangs or self._is_stalled_after_loop:
            self._phase_limits.extend_after_report(
                Phase[stalled_phase.phase.upper()], duration_ns, is_after_loop=self._is_stalled_after_loop
            )
        _log.warning("Training continues: %s took %.0f s.", stalled_phase.phase.replace("_", " "), duration_ns / 1e9)

    def _write_file(self) -> str:
        """Write the stacks and return the reason if that fails; "" on success."""
        if not self._pulse.sibling_path(STALL_SUFFIX):
            return "this run has no file for its pulse either"
        try:
            self._pulse.write_sibling(STALL_SUFFIX, self._stall_file.encoded())
        except (OSError, UnsafePathError) as error:
            return (error.strerror if isinstance(error, OSError) else None) or f"{error}".rstrip(".")
        return ""

    def _read_stacks(self, frames: dict[int, FrameType]) -> list[ThreadStack]:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        idents = [ident for ident in frames if not names.get(ident, "").startswith(_PROFILER_THREADS)]
        order = sorted(idents, key=lambda ident: ident != self._training_ident)[:_MAX_THREADS]
        return [
            ThreadStack(
                self._redact(names.get(ident, f"thread {ident}")),
                ident == self._training_ident,
                [self._redact(line) for line in _format_frames(frames[ident])],
            )
            for ident in order
        ]


def _is_called_by(frame: FrameType | None, modules: Sequence[str]) -> bool:
    """Return whether a frame of one of these modules is on the stack, at any depth."""
    while frame is not None:
        if frame.f_globals.get("__name__") in modules:
            return True
        frame = frame.f_back
    return False


def _format_frames(frame: FrameType | None) -> list[str]:
    """Return the lines of a stack, innermost first, as ``train.py(41): loss``, without the profiler's frames."""
    return [format_frame(each.f_code, each.f_lineno) for each in skip_profiler_frames(frame, _MAX_FRAMES)]


def _find_location(frame: FrameType | None) -> str:
    """Return the innermost line of the user's code, and the library call that it is in, if any."""
    innermost = _format_frames(frame)[:1]
    while frame is not None and not is_user_code(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "".join(innermost)
    user_line = format_frame(frame.f_code, frame.f_lineno)
    return user_line if innermost == [user_line] else f"{user_line}, in {innermost[0]}"
