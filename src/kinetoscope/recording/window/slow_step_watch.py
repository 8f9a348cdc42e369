"""Detection of outlier steps while nothing is recorded: their phases, markers, and stacks of the training thread.

A background thread waits in C without the GIL (`pulse/slow.c`). It takes the GIL when a step is late, to sample the
stack, and after an outlier step, to build a `Cycle` of it: a window of one step.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.clock.clock import Anchor, Clock, read_anchor
from kinetoscope.core.clock.thread_times import SCHEDSTAT
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.core.paths.source_files import format_frame, is_user_code, skip_profiler_frames, source_name
from kinetoscope.formats.slow_steps import SlowStep
from kinetoscope.formats.trace_names import BATCH, SAMPLE, SAMPLE_OF_LIBRARY, SAMPLES_TRACK, WATCHED_PHASE
from kinetoscope.native import native
from kinetoscope.pulse.layout import Phase
from kinetoscope.recording.markers.native_recorder import NativeRecorder
from kinetoscope.recording.markers.recorder_types import FRAME_OFFSET_NS, SpanName, WindowRecords
from kinetoscope.recording.private_names import frame_of_thread
from kinetoscope.recording.window.cycle import Contributions, Cycle
from kinetoscope.recording.window.slow_step_quota import SlowStepQuota
from kinetoscope.recording.window.source_events import PHASE_NAMES, PHASES_TID, PHASES_TRACK, SourceEvent
from kinetoscope.spool.record import Flag, Kind, Record, ThreadRecords, pack_records

_SAMPLES_TID = PHASES_TID + 1
_MAX_SAMPLES, _MAX_FRAMES = 3_000, 200
_MIN_SAMPLES_ON_LINE = 2
_JOIN_S = 5.0


class _Frame(NamedTuple):
    """Line of a stack: as it is named in traces, and as ``file:line``."""

    name: str
    line: str
    is_user_code: bool


Times = tuple[int, tuple[int, ...], int | None]
"""The duration of a step, the time in each phase, and the run-queue delay, in nanoseconds; None where the system does
not report it."""

_Stack = tuple[_Frame, ...]
"""Frames of a thread, the outermost first."""


class _MeasuredStep(NamedTuple):
    """Outlier step, as `SlowSteps.take` returns it."""

    step: int
    epoch: int
    begin_ns: int
    times: Times
    usual: Times
    limit_ns: int
    phase_intervals: list[tuple[int, int, int]]
    marks: list[tuple[int, int, int]]
    num_left_out: int


class SlowStepWatch:
    """Watch the steps of the calling thread in the pulse's ``writer``, and its spans in ``recorder``.

    Args:
        writer: the writer of the pulse.
        recorder: the recorder of the run.
        clock: the clock of the run.
        describe: returns the name of the run, its ranks and its attempt.
        deliver: gets each outlier step that is kept as a cycle, on the thread of the watch.
        report: gets the message if the watch fails. Then no more steps are watched.
    """

    def __init__(
        self,
        writer: Any,
        recorder: NativeRecorder,
        clock: Clock,
        describe: Callable[[], tuple[str, Ranks, Attempt]],
        deliver: Callable[[Cycle], object],
        report: Callable[[str], object],
    ) -> None:
        self._tid, self._ident = threading.get_native_id(), threading.get_ident()
        self._thread_name = threading.current_thread().name
        self._is_main = threading.current_thread() is threading.main_thread()
        self._slow: Any = native.SlowSteps(SCHEDSTAT.format(self._tid))
        self._writer, self._recorder, self._clock = writer, recorder, clock
        self._describe, self._deliver, self._report = describe, deliver, report
        self._quota = SlowStepQuota()
        self._samples: list[tuple[int, _Stack]] = []
        self._sampled_step = 0
        self._num_kept = 0
        self._is_over = False
        writer.watch_slow_steps(self._slow)
        recorder.watch_slow_steps(self._slow)
        self._thread = BackgroundThread(self._run, "kinetoscope-slow-steps")
        if not self._thread.try_start("Slow steps are not kept"):
            self._detach()

    def set_enabled(self, is_on: bool) -> None:
        """Switch the comparison of steps on or off: it must be off for recorded steps, which take longer."""
        self._slow.set_enabled(is_on)

    def stop(self) -> None:
        """Stop; outlier steps so far are delivered."""
        self._is_over = True
        self._detach()
        self._slow.stop()
        self._thread.join(_JOIN_S)

    def _detach(self) -> None:
        self._writer.watch_slow_steps(None)
        self._recorder.watch_slow_steps(None)

    # -- on our own thread --

    def _run(self) -> None:
        """Sample late steps and keep outlier steps until `stop`."""
        try:
            while not self._is_over:
                if self._slow.wait():
                    self._sample_late_step()
            self._keep_slow_steps()
        except Exception as error:  # errors must not reach training
            self._report(f"Slow steps are not watched any more: {type(error).__name__}: {error}")
            self._slow.set_enabled(False)
            self._detach()

    def _sample_late_step(self) -> None:
        """Sample the stack of the training thread if its step is late."""
        self._keep_slow_steps()
        late_start_ns = self._slow.late_step()
        if late_start_ns != self._sampled_step:
            self._sampled_step, self._samples = late_start_ns, []
        if not late_start_ns or len(self._samples) >= _MAX_SAMPLES:
            return
        now_ns, stack = self._clock.monotonic_ns(), _read_stack(self._ident)
        if self._slow.began() != late_start_ns:  # the stack may be of the next step
            return
        if self._samples and self._samples[-1][1] == stack:
            stack = self._samples[-1][1]  # in a long step most are alike
        self._samples.append((now_ns, stack))

    def _keep_slow_steps(self) -> None:
        while (fields := self._slow.take()) is not None:
            measured = _MeasuredStep(*fields)
            phase = _find_phase(measured)
            is_kept, every = self._quota.admit(measured.step, phase, measured.begin_ns)
            if is_kept:
                samples = self._samples if measured.begin_ns == self._sampled_step else []
                self._deliver(self._build_cycle(measured, phase, every, samples))
                self._num_kept += 1

    def _build_cycle(
        self, measured: _MeasuredStep, phase: int, every: int | None, samples: list[tuple[int, _Stack]]
    ) -> Cycle:
        run_name, ranks, attempt = self._describe()
        now, names = read_anchor(self._clock), self._recorder.names.names
        records = list(_build_records(measured, names))
        begin, end = (
            Anchor(at_ns, now.unix_ns + at_ns - now.monotonic_ns, now.bound_ns)
            for at_ns in (measured.begin_ns, measured.begin_ns + measured.times[0])
        )
        samples = [sample for sample in samples if sample[0] < end.monotonic_ns]
        contributions = Contributions(cycle=self._num_kept)
        contributions.events.num_left_out = measured.num_left_out
        contributions.events.tracks.update(self._name_tracks(samples, has_records=bool(records)))
        for event in self._build_events(measured, samples, end.monotonic_ns):
            contributions.events.add(event)
        moment = Timestamp(epoch=measured.epoch, batch=measured.step)
        return Cycle(
            number=self._num_kept,
            run_name=run_name,
            ranks=ranks,
            attempt=attempt,
            pid=os.getpid(),
            begin_timestamp=moment,
            timestamp=moment.to_next_batch(),
            begin=begin,
            end=end,
            names=names,
            recorded=WindowRecords(lambda: self._build_threads(records)),
            contributions=contributions,
            metadata=ranks.header_fields,
            slow_step=_build_slow_step(measured, phase, every, samples, ranks.rank, attempt, begin.unix_ns),
        )

    def _build_threads(self, records: list[Record]) -> list[ThreadRecords]:
        if not records:
            return []
        return [ThreadRecords.of(self._tid, self._thread_name, self._is_main, pack_records(records))]

    def _name_tracks(self, samples: list[tuple[int, _Stack]], *, has_records: bool) -> dict[int, str]:
        tracks = {PHASES_TID: PHASES_TRACK} | ({} if has_records else {self._tid: self._thread_name})
        return tracks | {_SAMPLES_TID: SAMPLES_TRACK.format(self._thread_name)} if samples else tracks

    def _build_events(
        self, measured: _MeasuredStep, samples: list[tuple[int, _Stack]], end_ns: int
    ) -> Iterator[SourceEvent]:
        batch = {"epoch": measured.epoch, "batch": measured.step}
        yield SourceEvent(BATCH, "batch", measured.begin_ns, end_ns, self._tid, batch)
        for phase, begin_ns, until_ns in measured.phase_intervals:
            if phase != Phase.OTHER:
                yield SourceEvent(PHASE_NAMES[phase], WATCHED_PHASE, begin_ns, until_ns, PHASES_TID, {})
        yield from _build_sample_spans(samples, end_ns)


def _build_records(measured: _MeasuredStep, names: Sequence[SpanName]) -> Iterator[Record]:
    """Yield the user's spans in the step, in the order of their ends, as they are recorded in a window."""
    marks = [mark for mark in measured.marks if names[mark[0]].name != BATCH]
    for index, (name, begin_ns, end_ns) in enumerate(marks):
        earlier = sum(start_ns < begin_ns < stop_ns for _, start_ns, stop_ns in marks[:index])
        later = sum(start_ns <= begin_ns for _, start_ns, _ in marks[index + 1 :])
        yield Record(begin_ns, end_ns, name, measured.step & 0xFFFF_FFFF, earlier + later, Kind.SPAN, Flag(0), 0)


def _find_phase(measured: _MeasuredStep) -> int:
    """Return the phase with most of the additional time."""
    by_phase, usual = measured.times[1], measured.usual[1]
    return max(range(len(Phase)), key=lambda phase: by_phase[phase] - usual[phase])


def _build_slow_step(
    measured: _MeasuredStep,
    phase: int,
    every: int | None,
    samples: list[tuple[int, _Stack]],
    rank: int,
    attempt: Attempt,
    begin_ns: int,
) -> SlowStep:
    (duration_ns, by_phase, starved_ns), (usual_ns, usual_by_phase, usual_starved_ns) = measured.times, measured.usual
    line, num_on_line = _find_line(samples)
    more_starved_ns = None if starved_ns is None or usual_starved_ns is None else starved_ns - usual_starved_ns
    return SlowStep(
        start=attempt.start,
        restart=attempt.restart,
        rank=rank,
        step=measured.step,
        epoch=measured.epoch,
        begin_ns=begin_ns,
        duration_ns=duration_ns,
        usual_ns=usual_ns,
        phase=phase,
        phase_ns=by_phase[phase],
        phase_usual_ns=usual_by_phase[phase],
        line=line,
        num_samples=len(samples),
        num_on_line=num_on_line,
        starved_ns=more_starved_ns,
        every=every,
    )


# -- stacks --


def _read_stack(ident: int) -> _Stack:
    """Return the stack of a thread without the profiler's frames; only the innermost ones of a very deep stack."""
    measured = [_read_frame(frame) for frame in skip_profiler_frames(frame_of_thread(ident), _MAX_FRAMES)]
    return tuple(reversed(measured))


def _read_frame(frame: FrameType) -> _Frame:
    code, line = frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
    name, file = format_frame(code, line), source_name(code.co_filename)
    return _Frame(name, f"{file}:{line}", is_user_code(code.co_filename))


def _find_line(samples: list[tuple[int, _Stack]]) -> tuple[str | None, int]:
    """Return the user's line in most samples, or that called the sampled library code, and their number."""
    lines = Counter(_find_user_line(stack) for _, stack in samples if stack)
    line, count = max(lines.items(), key=lambda measured: measured[1], default=("", 0))
    return (line, count) if count >= _MIN_SAMPLES_ON_LINE else (None, 0)


def _find_user_line(stack: _Stack) -> str:
    """Return the innermost line of the user's code in a stack, else its innermost line."""
    return next((frame.line for frame in reversed(stack) if frame.is_user_code), stack[-1].line)


def _build_sample_spans(samples: list[tuple[int, _Stack]], end_ns: int) -> Iterator[SourceEvent]:
    """Yield nested spans: a sample lasts until the next one, and equal frames of consecutive samples are one span."""
    is_open: list[tuple[_Frame, int]] = []
    for at_ns, stack in [*samples, (end_ns, ())]:
        num_same = 0
        while num_same < min(len(is_open), len(stack)) and is_open[num_same][0] == stack[num_same]:
            num_same += 1
        while len(is_open) > num_same:
            frame, begin_ns = is_open.pop()
            category = SAMPLE if frame.is_user_code else SAMPLE_OF_LIBRARY
            yield SourceEvent(frame.name, category, begin_ns, max(begin_ns, at_ns), _SAMPLES_TID, {})
        for frame in stack[num_same:]:
            is_open.append((frame, at_ns + FRAME_OFFSET_NS * len(is_open)))
