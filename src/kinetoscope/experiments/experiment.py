"""Rounds of starts of a command, interleaved with its variants, and their result."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

import kinetoscope
from kinetoscope.autoinstrument.trial_files import MIN_STEPS, TrialSettings
from kinetoscope.core.text.wording import format_ms
from kinetoscope.errors import KinetoscopeError
from kinetoscope.experiments.plan import MAX_ROWS, Candidate, Request, choose_candidates, pair_candidates
from kinetoscope.experiments.results import compare_results
from kinetoscope.experiments.start import (
    LOG_FILE,
    Command,
    InterruptedTrialError,
    StartResult,
    delete_start,
    run_start,
)
from kinetoscope.experiments.statistics import (
    Judged,
    Rounds,
    compute_typical_step_ns,
    estimate_noise,
    judge,
)
from kinetoscope.formats.experiments import MIN_CHANGE, AppliedVariant, Experiment, ExperimentRow, Results, Verdict
from kinetoscope.variants.facts import Facts

LIMIT_RATIO, MIN_LIMIT_S = 5, 60.0
"""Time limit of a start, relative to the unmodified program's, and at least."""

MAX_STEPS_S = 30.0
"""Time of the measured steps of one start: slower programs take fewer of them."""

MAX_UNMODIFIED_RATIO = 3.0
"""If starts of the unmodified program differ by more, no change of a variant can be measured: docs/comparing.md has
this factor of a machine with two other busy processes."""

_NO_PAIRS = "There was no time to try pairs of variants."
_MIN_MINUTES_S = 90.0
"""Longer times are shown in minutes."""

_MIN_ROUNDS = 2
"""With fewer rounds a variant has no interval."""


class TrialFailedError(KinetoscopeError):
    """The unmodified command could not be measured."""


class _TimeOverError(Exception):
    """There is no time for another start."""


class _StoppedError(Exception):
    """No more can be measured: the unmodified command fails, or varies too much; the text is a note of the result."""


@dataclass(frozen=True)
class Options:
    """Settings of an experiment: ``files`` define a user's variants.

    Without ``compares_results`` there are no starts for the comparison of parameters.
    """

    num_steps: int = 60
    num_rounds: int = 3
    max_s: float = 600.0
    files: tuple[str, ...] = ()
    compares_results: bool = True

    def num_starts(self, num_rows: int, num_pairs: int = 0) -> int:
        """Return the number of starts of the command, if no row needs more rounds."""
        num_in_rounds = self.num_rounds * (2 + num_rows + (2 + num_pairs if num_pairs else 0))
        return 1 + num_in_rounds + 2 + num_rows + num_pairs


@dataclass
class _Row:
    """A candidate, and what was measured of it."""

    candidate: Candidate
    by_round: dict[int, float] = field(default_factory=dict)
    peaks: list[int | None] = field(default_factory=list)
    verdict: Verdict | None = None
    reason: str = ""
    results: Results | None = None
    results_reason: str = ""

    @property
    def is_running(self) -> bool:
        return self.verdict is None

    @property
    def changes_loader(self) -> bool:
        return any("DataLoader" in request.variant.code for request in self.candidate.requests)


class ExperimentRun:
    """One call of `kinetoscope try`.

    ``folder`` is that of the starts. ``show_start`` is called with the label and the time limit in seconds of each
    start, ``report`` with a line after it. With ``find_requests``, the first start is recorded, and the function
    returns requests for its findings.
    """

    def __init__(
        self,
        command: Command,
        requests: Sequence[Request],
        options: Options,
        folder: Path,
        *,
        is_interrupted: Callable[[], bool],
        report: Callable[[str], object],
        show_start: Callable[[str, float], object] = lambda label, limit_s: None,
        find_requests: Callable[[Path], Sequence[Request]] | None = None,
    ) -> None:
        self._command, self._requests, self._options = command, requests, options
        self._folder, self._is_interrupted, self._report = folder, is_interrupted, report
        self._show_start, self._find_requests = show_start, find_requests
        self._started, self._started_unix_s = time.monotonic(), time.time()
        self._durations: list[float] = []
        self._num_starts, self._num_steps = 0, options.num_steps
        self._limit_s = options.max_s
        self._unmodified: list[tuple[float, float]] = []
        self._peaks: list[int | None] = []
        self._is_peak_of_device = False
        self._num_ranks = 1
        self._facts = Facts()
        self._has_helpers = False
        self._rows: list[_Row] = []
        self._unused: list[Request] = []
        self._notes: list[str] = []
        self._is_complete = True
        self.was_interrupted = False

    def run(self) -> Experiment:
        """Measure, and return the result; after an interrupt, what is known.

        Raises `TrialFailedError` if the first start of the unmodified command fails, with the last lines of its log;
        OSError if it cannot be started.
        """
        try:
            self._measure_first()
            self._measure_rounds(self._rows)
            self._measure_pairs()
            self._narrow_intervals()
            self._compare_results()
        except InterruptedTrialError:
            self._is_complete, self.was_interrupted = False, True
            self._notes.append("Interrupted.")
        except _TimeOverError:
            self._is_complete = False
            self._notes.append("The time was over: pass a larger --max-minutes.")
        except _StoppedError as error:
            self._is_complete = False
            self._notes.append(str(error))
        except OSError as error:
            if not self._rows:
                raise
            self._is_complete = False
            self._notes.append(f"A start failed: {error.strerror or error}.")
        return self._build()

    # -- starts --

    def _start(self, candidate: Candidate | None, label: str, **changes: bool) -> StartResult:
        """Start the command, and report the result in a line.

        Raises `_TimeOverError` if it has no result since the time of the experiment is over.
        """
        self._num_starts += 1
        name = f"start {self._num_starts}: {label}"
        limit_s = min(self._limit_s, max(0.0, self._compute_left_s()))
        self._show_start(name, limit_s)
        folder = self._folder / f"{self._num_starts:03}"
        settings = TrialSettings(
            folder=str(folder),
            variants=list(candidate.applied) if candidate else [],
            files=list(self._options.files),
            num_steps=self._num_steps,
            max_s=MAX_STEPS_S,
            has_helpers=self._has_helpers,
            **changes,
        )
        try:
            result = run_start(self._command, settings, timeout_s=limit_s, is_interrupted=self._is_interrupted)
        except BaseException:
            delete_start(folder, keeps_log=False)
            raise
        if result.recording is not None and self._find_requests is not None:
            self._requests = self._find_requests(result.recording)
        self._durations.append(result.duration_s)
        time_of_step = (
            f"{format_ms(_compute_typical_ns(result))} ms/step" if result.ranks else f"failed: {result.reason}"
        )
        left = self._describe_time_left()
        self._report(f"{name}: {time_of_step} ({result.duration_s:.0f} s; {left})")
        is_over = not result.ranks and self._num_starts > 1 and self._compute_left_s() <= 0
        delete_start(folder, keeps_log=bool(result.log_tail.strip()) and not is_over)
        if is_over:
            raise _TimeOverError
        return result

    def _require_time(self, num_starts: int) -> None:
        """Raise `_TimeOverError` if so many starts do not fit into the time that is left."""
        if num_starts * fmean(self._durations) > self._compute_left_s():
            raise _TimeOverError

    def _compute_left_s(self) -> float:
        return self._started + self._options.max_s - time.monotonic()

    def _describe_time_left(self) -> str:
        """Return the time of the planned starts, and the limit: pairs, and variants that vary, need more starts."""
        max_s = max(0.0, self._compute_left_s())
        num_left = self._options.num_starts(len(self._rows)) - self._num_starts if self._rows else 0
        if num_left <= 0:
            return f"at most {_format_minutes(max_s)} left"
        times = [_format_minutes(min(max_s, num_left * fmean(self._durations))), _format_minutes(max_s)]
        return f"{' to '.join(dict.fromkeys(times))} left"

    # -- phases --

    def _measure_first(self) -> None:
        """Start the unmodified command once: its step times do not count, since caches are cold."""
        first = self._start(None, "unmodified, not counted", observes=True, records=self._find_requests is not None)
        if not first.ranks:
            log = self._folder / "001" / LOG_FILE
            tail = f"\nThe last lines of its output, {log}:\n{first.log_tail}" if first.log_tail.strip() else ""
            raise TrialFailedError(f"The command could not be measured: {_describe_failure(first)}.{tail}")
        self._limit_s = max(MIN_LIMIT_S, LIMIT_RATIO * first.duration_s)
        self._num_steps = max(MIN_STEPS, min(len(rank.step_times_ns) for rank in first.ranks))
        self._num_ranks = first.ranks[0].world_size
        self._facts = first.ranks[0].facts or Facts()
        self._has_helpers = first.has_helpers
        candidates, left_out, self._unused = choose_candidates(self._requests, self._facts)
        if left_out:
            names = ", ".join(one.label for one in left_out)
            self._notes.append(
                f"Not measured, since there are at most {MAX_ROWS} rows: {names}. Name them by --fix in another call."
            )
        self._rows = [_Row(candidate) for candidate in candidates]

    def _measure_rounds(self, rows: Sequence[_Row]) -> None:
        """Run the requested rounds."""
        for _ in range(self._options.num_rounds):
            self._measure_round(rows)

    def _narrow_intervals(self) -> None:
        """Run more rounds until intervals are narrow or the time is over."""
        while unsettled := [row for row in self._rows if row.is_running and not self._is_settled(row)]:
            num_starts = 2 + len(unsettled) + self._count_starts_for_results()
            if num_starts * fmean(self._durations) > self._compute_left_s():
                return
            self._measure_round(unsettled)
            self._measure_pairs()

    def _measure_round(self, rows: Sequence[_Row]) -> None:
        """Start each variant once, and the unmodified command twice, in an order that rotates."""
        running = [row for row in rows if row.is_running]
        if not running:
            return
        half = len(running) // 2
        order: list[_Row | None] = [None, *running[:half], None, *running[half:]]
        number = len(self._unmodified)
        turn = number % len(order)
        unmodified = list[float]()
        by_row = list[tuple[_Row, float]]()
        try:
            for row in order[turn:] + order[:turn]:
                self._require_time(1)
                if row is None:
                    unmodified.append(self._measure_unmodified())
                    self._require_steady(unmodified)
                elif (step_ns := self._measure_row(row)) is not None:
                    by_row.append((row, step_ns))
        finally:
            if len(unmodified) == 2:  # also if the time is over in the last starts of the round
                self._unmodified.append((unmodified[0], unmodified[1]))
                for row, step_ns in by_row:
                    row.by_round[number] = step_ns

    def _measure_unmodified(self) -> float:
        result = self._start(None, "unmodified")
        if not result.ranks:
            raise _StoppedError(
                f"A later start of the unmodified command failed: {_describe_failure(result)}. If the command works "
                "only once in its folder, pass --copy."
            )
        self._peaks.append(self._find_peak(result))
        return _compute_typical_ns(result)

    def _require_steady(self, of_round: Sequence[float]) -> None:
        """Raise `_StoppedError` if the starts of the unmodified command so far differ too much."""
        times_ns = [*(step_ns for pair in self._unmodified for step_ns in pair), *of_round]
        fastest_ns, slowest_ns = min(times_ns), max(times_ns)
        if slowest_ns > MAX_UNMODIFIED_RATIO * fastest_ns:
            raise _StoppedError(
                f"Stopped early: starts of the unmodified program took {format_ms(fastest_ns)} to "
                f"{format_ms(slowest_ns)} ms/step, so that no fix can be measured on this machine now. End other "
                "programs on it, or use an idle machine, and try again."
            )

    def _measure_row(self, row: _Row) -> float | None:
        """Return the step of a start; None for a variant that failed or changed nothing."""
        result = self._start(row.candidate, row.candidate.label)
        if not result.ranks:
            row.verdict, row.reason = "failed", _describe_failure(result)
            if result.error and result.error not in row.reason:
                row.reason += f"; its log ends with: {result.error}"
            return None
        for one in row.candidate.applied:
            if not any(rank.num_applied.get(one.name) for rank in result.ranks):
                row.verdict, row.reason = "not_applied", f"{one.name} changed nothing in this program"
                return None
        row.peaks.append(self._find_peak(result))
        return _compute_typical_ns(result)

    def _measure_pairs(self) -> None:
        """Measure pairs of the variants that gain so far, once.

        Pairs come before intervals are narrow: on a noisy machine that takes all the time there is.
        """
        if any(len(row.candidate.applied) > 1 for row in self._rows):
            return
        gained = [
            (one.change, number)
            for number, (row, one) in enumerate(zip(self._rows, self._judge(), strict=True))
            if row.is_running and one is not None and one.verdict == "faster"
        ]
        pairs = pair_candidates([self._rows[number].candidate for _, number in sorted(gained)])
        if not pairs:
            return
        num_starts = self._options.num_rounds * (2 + len(pairs)) + self._count_starts_for_results()
        if num_starts * fmean(self._durations) > self._compute_left_s():
            self._notes += [_NO_PAIRS] * (_NO_PAIRS not in self._notes)
            return
        rows = [_Row(pair) for pair in pairs]
        self._rows += rows
        self._measure_rounds(rows)

    def _count_starts_for_results(self) -> int:
        rows = [row for row in self._rows if row.is_running]
        return 2 + len(rows) if rows and self._options.compares_results else 0

    def _compare_results(self) -> None:
        """Compare parameters in starts that are not timed, of the variants that are not slower."""
        judged = self._judge()
        pairs = [(row, one) for row, one in zip(self._rows, judged, strict=True) if row.is_running and one is not None]
        rows = [row for row, one in pairs if one.verdict != "slower"]
        if not rows or not self._options.compares_results:
            return
        self._require_time(2 + 1)
        has_workers = any(loader.num_workers for loader in self._facts.loaders)
        first, second = (self._start(None, "unmodified, for its results", compares_results=True) for _ in range(2))
        for row in rows:
            self._require_time(1)
            label = f"{row.candidate.label}, for its results"
            result = self._start(row.candidate, label, compares_results=True)
            row.results, row.results_reason = compare_results(
                first.ranks, second.ranks, result.ranks or None, may_augment=has_workers or row.changes_loader
            )

    # -- results --

    def _judge(self) -> list[Judged | None]:
        return judge(Rounds(self._unmodified), [row.by_round for row in self._rows])

    def _is_settled(self, row: _Row) -> bool:
        judged = self._judge()[self._rows.index(row)]
        return judged is not None and (judged.width < MIN_CHANGE or judged.verdict == "slower")

    def _find_peak(self, result: StartResult) -> int | None:
        of_device = [rank.peak_device_bytes for rank in result.ranks if rank.peak_device_bytes]
        self._is_peak_of_device = bool(of_device)
        return max(of_device or [rank.peak_bytes for rank in result.ranks if rank.peak_bytes], default=None)

    def _build(self) -> Experiment:
        rounds = Rounds(self._unmodified)
        flat = [math.log(step_ns) for pair in self._unmodified for step_ns in pair]
        step_ns = math.exp(fmean(flat)) if flat else None
        judged = self._judge()
        rows = [self._build_row(row, one, step_ns) for row, one in zip(self._rows, judged, strict=True)]
        rows += [self._build_unused(request) for request in self._unused]
        if not rows and self._is_complete:
            self._notes.append("No variant applies to this program.")
        return Experiment(
            version=kinetoscope.__version__,
            started_unix_s=self._started_unix_s,
            duration_s=time.monotonic() - self._started,
            num_steps=self._num_steps,
            num_rounds=len(self._unmodified),
            num_starts=self._num_starts,
            num_ranks=self._num_ranks,
            step_ns=step_ns,
            noise=estimate_noise(rounds),
            rows=sorted(rows, key=lambda row: math.inf if row.change is None else row.change),
            notes=self._notes,
            is_complete=self._is_complete,
        )

    def _build_row(self, row: _Row, judged: Judged | None, step_ns: float | None) -> ExperimentRow:
        requests = row.candidate.requests
        if row.verdict is not None:
            judged = None
        known = "" if judged or row.verdict else _describe_missing_rounds(len(row.by_round))
        return ExperimentRow(
            variants=list(row.candidate.applied),
            verdict=row.verdict or (judged.verdict if judged else "unsure"),
            reason=row.reason or known or (judged.reason if judged else ""),
            code="\n".join(
                request.variant.describe_code(one.value, self._facts)
                for request, one in zip(requests, row.candidate.applied, strict=True)
            ),
            kinds=sorted({kind for request in requests for kind in request.variant.kinds}),
            findings=list(dict.fromkeys(name for request in requests for name in request.findings)),
            step_before_ns=step_ns,
            step_after_ns=None if judged is None or step_ns is None else step_ns * (1 + judged.change),
            change=None if judged is None else judged.change,
            interval=None if judged is None else judged.interval,
            num_starts=len(row.peaks),
            peak_bytes=_compute_typical_peak(row.peaks),
            peak_before_bytes=_compute_typical_peak(self._peaks),
            peak_is_of_device=self._is_peak_of_device,
            results=row.results,
            results_reason=row.results_reason,
        )

    def _build_unused(self, request: Request) -> ExperimentRow:
        name = request.variant.name
        return ExperimentRow(
            variants=[AppliedVariant(name, "")],
            verdict="not_applied",
            reason=f"{name} does not apply to this program, or is what it uses already",
            code=request.variant.describe_code(request.value, self._facts),
            kinds=list(request.variant.kinds),
            findings=list(request.findings),
        )


def _compute_typical_ns(result: StartResult) -> float:
    """Return the typical step of the slowest rank."""
    return max(compute_typical_step_ns(rank.step_times_ns) for rank in result.ranks)


def _compute_typical_peak(peaks: Sequence[int | None]) -> int | None:
    """Return the median of the known peaks, in bytes; None if no start could tell its peak."""
    known = [peak for peak in peaks if peak is not None]
    return round(median(known)) if known else None


def _describe_missing_rounds(number: int) -> str:
    return f"no interval: {_MIN_ROUNDS} rounds are needed, {number} {'was' if number == 1 else 'were'} completed"


def _format_minutes(time_s: float) -> str:
    return f"{time_s:.0f} s" if time_s < _MIN_MINUTES_S else f"{time_s / 60:.0f} min"


def _describe_failure(result: StartResult) -> str:
    """Return the reason, and after an exit code the line of the log that names the error."""
    return f"{result.reason}: {result.error}" if result.error and "exit code" in result.reason else result.reason
