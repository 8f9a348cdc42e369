"""Checks that traces are of one run, and notes on missing data."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from kinetoscope.analysis.ranks.clock_alignment import build_clock_shift_notes
from kinetoscope.analysis.ranks.collectives import MAX_CLOCK_DIFFERENCE_NS, ClockShift
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.ranks.stragglers import MIN_CLOCK_BOUNDS, MIN_SHARE_OF_STEP
from kinetoscope.analysis.steps.step_time import step_time_ns
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.summaries import SummedTrace, WindowSummary
from kinetoscope.core.text.wording import find_gaps, format_ranges, format_ranks, sanitize
from kinetoscope.errors import MergeError, SettingsError, TraceFileError

_MAX_NAMED = 3
_UNITS = ((3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def require_one_run(traces: Sequence[SummedTrace]) -> None:
    """Raise an error if there is nothing to analyze, or if the traces are of different runs.

    Raises:
        TraceFileError: without any trace.
        SettingsError: without a trace of the selected ranks.
        MergeError: if names or sizes of the run differ.
    """
    if not traces:
        raise TraceFileError("There is no trace to analyze. Pass at least one.")
    if not any(trace.windows for trace in traces):
        raise SettingsError(
            "No trace of the selected ranks (--ranks, or ranks= in Python). There are traces of "
            f"{format_ranks(_ranks(traces))}."
        )
    _require_one("name", {trace.name: trace.run_name for trace in traces})
    _require_one("number of ranks", {trace.name: trace.world_size for trace in traces})


def _require_one(what: str, by_file: Mapping[str, object]) -> None:
    files: dict[object, str] = {}
    for file, value in by_file.items():
        if value is not None:
            files.setdefault(value, file)
    if len(files) > 1:
        (one, file), (other, other_file), *_ = files.items()
        raise MergeError(
            f"Cannot analyze traces of different runs together: the {what} of the run is {sanitize(one)} in "
            f"{_label(file)}, and {sanitize(other)} in {_label(other_file)}. Pass the traces of one run; kinetoscope "
            "diff compares two."
        )


def require_one_time(steps: Iterable[StepRow]) -> None:
    """Raise MergeError if a rank recorded the same steps as the first one at another time, on the common clock.

    Then they are of different runs. A rank may have recorded a step several times, one of them with the first rank.
    """
    begins: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in steps:
        if row.rank is not None:
            begins[row.rank][row.step].append(row.begin_ns)
    first = min(begins, default=0)
    for rank, begins_of_step in begins.items():
        apart = [
            begin_ns - other_ns
            for step in begins_of_step
            for begin_ns in begins_of_step[step]
            for other_ns in begins[first].get(step, ())
        ]
        apart_ns = min(apart, key=abs, default=0)
        if abs(apart_ns) > MAX_CLOCK_DIFFERENCE_NS:
            raise MergeError(
                f"Cannot analyze these traces together: rank {rank} recorded the same steps as rank {first} "
                f"{_format_duration(abs(apart_ns))} {'later' if apart_ns > 0 else 'earlier'}, and no collectives show "
                "that both are of one run. Pass the traces of one run."
            )


def drop_duplicate_windows(
    pairs: Iterable[tuple[SummedTrace, WindowSummary]],
) -> tuple[list[WindowSummary], list[str]]:
    """Return each window once, and a note on each copy: the same steps of the same rank at the same time."""
    files: dict[object, str] = {}
    kept, notes = [], []
    for trace, window in pairs:
        begins = tuple((row.step, row.begin_ns) for row in window.steps)
        key = (window.rank, begins, window.num_spans, window.begin_ns)
        if window.num_spans and key in files:
            notes.append(f"{_label(trace.name)} was left out: it holds the same as {_label(files[key])}.")
            continue
        files.setdefault(key, trace.name)
        kept.append(window)
    return kept, notes


def why_unjudged(traces: Sequence[SummedTrace]) -> list[str]:
    """Return the reasons to report no findings on such traces; none if there are findings."""
    unknown_device_events = Counter[str]()
    for window in (window for trace in traces for window in trace.windows):
        unknown_device_events.update(window.unknown_device_events)
    cut = (
        f"{_label(trace.name)} is truncated, and none of its steps is whole: nothing is concluded from them."
        for trace in traces
        if trace.is_incomplete
    )
    return [
        *cut,
        *([_explain_unknown_events(unknown_device_events)] if unknown_device_events else []),
        *_build_filtered_notes(traces),
    ]


def _build_filtered_notes(traces: Iterable[SummedTrace]) -> Iterable[str]:
    files = [_label(trace.name) for trace in traces if any(window.is_filtered for window in trace.windows)]
    if files:
        more = f", as {len(files) - 1:,} more {'was' if len(files) == 2 else 'were'}" if len(files) > 1 else ""
        yield (
            f"{files[0]} was filtered after it was recorded{more}: most of its events were removed. Sums of operators "
            "and kernels cover the remaining events. Removed events may have run in any gap, so that idle time is an "
            "upper bound, and there are no findings."
        )


def build_run_notes(
    traces: Sequence[SummedTrace],
    windows: Sequence[WindowSummary],
    ranks: Sequence[RankRow],
    steps: Sequence[StepRow],
    shifts: Mapping[int, ClockShift],
) -> list[str]:
    """Return notes on missing data and on the accuracy of clocks."""
    return [
        *_build_truncated_notes(traces),
        *_build_content_notes(traces),
        *_build_rank_notes(traces),
        *_build_step_notes(traces, windows, steps),
        *_build_device_notes(ranks, windows),
        *_build_clock_notes(shifts, steps),
    ]


def _build_truncated_notes(traces: Iterable[SummedTrace]) -> Iterable[str]:
    for trace in traces:
        if trace.is_cut and trace.last_step is not None:
            of = "" if trace.rank is None else f" (rank {trace.rank})"
            steps = f"only steps up to {trace.last_step}, its last whole one, are used of all ranks"
            yield f"{_label(trace.name)}{of} is truncated: {steps}."


def _build_content_notes(traces: Iterable[SummedTrace]) -> Iterable[str]:
    for trace in traces:
        has_spans = any(window.num_spans for window in trace.windows)
        if has_spans and not any(window.has_torch_events for window in trace.windows):
            yield f"{_label(trace.name)} has neither operators of torch nor work of a device."
        elif any(window.has_only_loader_operators for window in trace.windows):
            yield (
                f"{_label(trace.name)} has only those operators of torch that make batches. If the loop hands its "
                "steps to other threads, pass experimental_config="
                "torch.profiler._ExperimentalConfig(profile_all_threads=True)."
            )


def _build_rank_notes(traces: Sequence[SummedTrace]) -> Iterable[str]:
    """Yield a note on ranks without traces. Waits for them cannot be recognised as such."""
    if absent := _absent_ranks(traces):
        yield (
            f"Missing traces: {absent}, of {_world_size(traces):,}. The time that others waited for them is unknown, "
            "and savings hold only if these ranks gain as much."
        )


def list_missing_data(traces: Sequence[SummedTrace], steps: Sequence[StepRow]) -> list[str]:
    """Return sentences on missing data of a run that did not end: ranks, and steps that other ranks have."""
    by_rank: defaultdict[int | None, set[int]] = defaultdict(set)
    for row in steps:
        by_rank[row.rank].add(row.step)
    sentences = [f"Missing traces: {absent}."] if (absent := _absent_ranks(traces)) else []
    if not by_rank:
        return [*sentences, "No step was saved."]
    all_steps = set[int]().union(*by_rank.values())
    lacking = {rank: sorted(all_steps - recorded) for rank, recorded in by_rank.items() if rank is not None}
    lacking |= {rank: sorted(all_steps) for rank in _ranks(traces) if rank not in by_rank}
    lacking = {rank: steps_of_rank for rank, steps_of_rank in sorted(lacking.items()) if steps_of_rank}
    named = [
        f"{_format_steps(steps_of_rank)} of rank {rank}" for rank, steps_of_rank in list(lacking.items())[:_MAX_NAMED]
    ]
    more = f", and steps of {len(lacking) - _MAX_NAMED:,} more ranks" if len(lacking) > _MAX_NAMED else ""
    sentences += [f"The last saved step is {max(all_steps)}."]
    return [*sentences, *([f"Missing steps that other ranks have: {', '.join(named)}{more}."] if named else [])]


def _format_steps(numbers: Sequence[int]) -> str:
    """Return ``step 3``, ``steps 3-7, 9``."""
    return f"step{'s' if len(numbers) > 1 else ''} {format_ranges(numbers, _MAX_NAMED)}"


def _build_step_notes(
    traces: Sequence[SummedTrace], windows: Sequence[WindowSummary], steps: Sequence[StepRow]
) -> Iterable[str]:
    if not steps:
        yield _explain_missing_steps(traces)
        return
    inferred = sorted({window.inferred_from for window in windows if window.inferred_from is not None})
    if inferred:
        yield (
            f"No span is a step, so a step is the time from one {sanitize(inferred[0])} to the next. For other steps, "
            "pass --step SPAN, or step= in Python."
        )
    without = sorted({window.rank for window in windows if window.rank is not None} - {row.rank for row in steps})
    if without:
        yield f"No step was found on {format_ranks(without)}."
    numbers = defaultdict(set)
    for row in steps:
        numbers[row.rank, row.step].add(row.begin_ns)
    repeated = [(rank, step) for (rank, step), begins in numbers.items() if len(begins) > 1]
    if repeated:
        rank, step = repeated[0]
        yield (
            f"Recorded more than once: {len(repeated):,} of the steps, such as step {step} of rank {rank}. Each time "
            "has a row of its own, and collectives in it that have no number are not joined. Are the traces of one run?"
        )


def _explain_missing_steps(traces: Sequence[SummedTrace]) -> str:
    name = next((trace.step_name for trace in traces), None)
    near = dict.fromkeys(near for trace in traces for near in trace.similar_names)
    named = " or ".join(map(sanitize, near))
    if name is not None:
        meant = f" Did you mean {named}?" if near else ""
        called = f"called {sanitize(name)}, with or without a number after it"
        return f"No step was found: no span of a thread is {called}.{meant}"
    choice = f"Spans that recur: {named}. Pass one of them" if near else "If they are called otherwise, pass the name"
    return (
        "No step was found: steps are spans called ProfilerStep#n, which torch.profiler's step() makes, or "
        f"event/batch. {choice} with --step SPAN, or step= in Python."
    )


def _build_device_notes(ranks: Sequence[RankRow], windows: Sequence[WindowSummary]) -> Iterable[str]:
    has_unknown_events = any(window.unknown_device_events for window in windows)
    may_have_one = {window.rank for window in windows if window.unknown_device_events}
    ranks = [row for row in ranks if row.rank not in may_have_one]
    without = sorted({row.rank for row in ranks if row.window_ns is None and row.rank is not None})
    if not has_unknown_events and all(row.window_ns is None for row in ranks):
        yield "No GPU work was recorded: all times are CPU times."
    elif without:
        yield f"No GPU work was recorded on {format_ranks(without)}."


def _explain_unknown_events(counts: Mapping[str, int]) -> str:
    named = ", ".join(f"{count:,} of category {sanitize(category)}" for category, count in counts.items())
    return (
        f"Unknown device events: {named}. They are not counted, so devices may do more than shown here, a step may "
        "take longer, and findings are switched off."
    )


def _build_clock_notes(shifts: Mapping[int, ClockShift], steps: Sequence[StepRow]) -> Iterable[str]:
    for rank, shift in sorted(shifts.items()):
        if abs(shift.shift_ns) > MAX_CLOCK_DIFFERENCE_NS:
            order = "behind" if shift.shift_ns > 0 else "before"
            yield (
                f"The clock of rank {rank} is {_format_duration(abs(shift.shift_ns))} {order} those of the others. Its "
                "times were moved so that collectives end together, which they do within "
                f"{_format_duration(shift.bound_ns)}."
            )
    near = {rank: shift for rank, shift in shifts.items() if abs(shift.shift_ns) <= MAX_CLOCK_DIFFERENCE_NS}
    for note in build_clock_shift_notes(near):
        yield f"{note} Their times were moved so that these end together."
    bound_ns = MIN_CLOCK_BOUNDS * max((shift.bound_ns for shift in shifts.values()), default=0)
    if steps and bound_ns > MIN_SHARE_OF_STEP * (step_time_ns(steps) or 0.0):
        yield (
            f"The clocks of ranks agree within {_format_duration(bound_ns // MIN_CLOCK_BOUNDS)}: a straggler of less "
            f"than {_format_duration(bound_ns)} is within the error of its clock."
        )


def _ranks(traces: Iterable[SummedTrace]) -> list[int]:
    return sorted({rank for trace in traces for rank in trace.ranks})


def _world_size(traces: Iterable[SummedTrace]) -> int:
    return max((trace.world_size for trace in traces if trace.world_size is not None), default=0)


def _absent_ranks(traces: Sequence[SummedTrace]) -> str:
    """Return the ranks of the run without a trace; "" if there are none, or the size of the run is unknown."""
    present = _ranks(traces)
    absent = find_gaps(present, _world_size(traces))
    return format_ranks(absent) if absent and present else ""


def _label(file: str) -> str:
    return sanitize(PurePath(file).name or file)


def _format_duration(time_ns: int) -> str:
    for unit_ns, unit in _UNITS:
        if time_ns >= unit_ns:
            return f"{time_ns / unit_ns:.1f} {unit}"
    return f"{time_ns} ns"
