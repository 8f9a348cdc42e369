"""Comparison of two runs: values that got slower or larger, and values whose difference is noise."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from kinetoscope.analysis.analyze import RunReport, analyze_sources
from kinetoscope.analysis.compare.all_steps_change import StepChange, compare_with_recorded, explain_few_unrecorded
from kinetoscope.analysis.compare.comparison import Comparison, ComparisonRow
from kinetoscope.analysis.compare.confidence_intervals import Calls, Change, Intervals, estimate_noise
from kinetoscope.analysis.compare.module_blocks import Series, find_blocks, fold
from kinetoscope.analysis.compare.series import (
    MEAN_STEP,
    MODULES,
    PEAK,
    STEP,
    SeriesKey,
    calls_per_step,
    device_share,
    phase_parts,
    span_ns,
    step_series,
    sum_over,
    waits_ns,
)
from kinetoscope.analysis.compare.typical_values import Estimate, estimate
from kinetoscope.analysis.compressed_pickle import packed_map_function
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.recording_options import RECORD_TEN_STEPS
from kinetoscope.analysis.labels import differing_folders
from kinetoscope.analysis.summaries import Selection
from kinetoscope.core.text.wording import format_count, format_ms, format_ranks, sanitize
from kinetoscope.frames.display import first_items
from kinetoscope.frames.load import PathLike
from kinetoscope.frames.trace import Trace
from kinetoscope.frames.trace_set import TraceSet

MIN_STEPS = 8
_MIN_SHARE = 0.005
"""Values below this share of a step in both runs are not compared."""

_ZERO_SHARE = 0.001
"""Smaller shares of a step count as this one, so that no change is infinite."""

_MAX_DOUBLINGS = 10
_MAX_NAMED_DEVICES = 4
_KINDS = {
    kind: order
    for order, kinds in enumerate(
        (("operator", "operator on device"), ("kernel",), MODULES, ("phase",), ("memory",), ("step",))
    )
    for kind in kinds
}
"""Kinds of rows, likely causes first."""

_RECORD_MORE = RECORD_TEN_STEPS.replace("`", "")
_WAITS = ("data_wait", "sync", "communication_wait", "device_idle")
_STATES = {"slower": 1, "faster": 1, "new": 1, "gone": 1, "unsure": 2, "same": 2}


def compare(
    before: RunReport | PathLike | Iterable[PathLike] | Iterable[Trace] | Trace | TraceSet,
    after: RunReport | PathLike | Iterable[PathLike] | Iterable[Trace] | Trace | TraceSet,
    *,
    threshold: float = 0.05,
    step: str | None = None,
    ranks: Iterable[int] | None = None,
    last_s: float | None = None,
    executor: Executor | None = None,
    cache: bool = True,
) -> Comparison:
    """Compare two runs, and return what got slower or larger.

        comparison = kinetoscope.compare("runs/before", "runs/after")
        print(comparison.step.change, comparison.worse)

    Args:
        before: the first run: a report, or what `kinetoscope.analyze` accepts.
        after: the second run.
        threshold: changes within this share of the first run, with 95 % confidence, are the ``same``.
        step: name of the spans that are steps, as for `kinetoscope.analyze`.
        ranks: ranks to compare; by default those of both runs.
        last_s: compare only the last seconds of each rank.
        executor: executor that analyzes traces in parallel.
        cache: keep summaries of traces in the user's cache.
    """
    selection = Selection(step=step, ranks=None if ranks is None else frozenset(ranks), last_s=last_s)
    report_on = partial(analyze_sources, map_function=packed_map_function(executor), cache=cache)
    return compare_sources((_to_list(before), _to_list(after)), selection, report_on, threshold)


def _to_list(source: Any) -> Any:
    """Return a report, or a list of sources, that can be read twice."""
    if isinstance(source, RunReport):
        return source
    return [source] if isinstance(source, (str, os.PathLike, Trace)) else list(source)


def compare_sources(
    sources: Sequence[Any], selection: Selection, report_on: Callable[[Any, Selection], RunReport], threshold: float
) -> Comparison:
    """Compare two lists of sources, or two reports.

    Args:
        sources: both runs.
        selection: the part of the runs to compare.
        report_on: builds the report on a list of sources.
        threshold: as for `compare`.
    """

    def reports(selection: Selection) -> list[RunReport]:
        return [source if isinstance(source, RunReport) else report_on(source, selection) for source in sources]

    found = reports(selection)
    shared = frozenset(found[0].run["ranks"]) & frozenset(found[1].run["ranks"])
    notes = _build_rank_notes(found, shared)
    if notes and shared:
        found = reports(replace(selection, ranks=shared))
    if selection != Selection():  # pulses have all ranks, all seconds, and only the usual steps
        found = [replace(report, unrecorded_ns=(), usual_ns=()) for report in found]
    return add_distinct_titles(compare_reports(*found, threshold=threshold, notes=notes), sources)


def add_distinct_titles(comparison: Comparison, sources: Sequence[Any]) -> Comparison:
    """Return the comparison; where both runs have one title, with the folders in which their paths differ.

    Args:
        comparison: the comparison.
        sources: both runs, as for `compare_sources`.
    """
    lists = [source for source in sources if isinstance(source, list) and len(source) == 1]
    paths = [os.fspath(path) for (path,) in lists if not isinstance(path, Trace)]
    title = comparison.before["title"]
    if title is None or title != comparison.after["title"] or len(paths) < len(sources):
        return comparison
    runs = (comparison.before, comparison.after)
    folders = differing_folders(*paths) or ()
    titled = [run | {"title": f"{title} in {folder}"} for run, folder in zip(runs, folders, strict=False)]
    return replace(comparison, before=titled[0], after=titled[1]) if titled else comparison


def compare_reports(
    before: RunReport, after: RunReport, *, threshold: float = 0.05, notes: Sequence[str] = ()
) -> Comparison:
    """Compare the reports on two runs.

    Args:
        before: the report on the first run.
        after: the report on the second run.
        threshold: as for `compare`.
        notes: sentences on differences between their ranks.
    """
    differences, rows, more_steps = [*notes, *_build_device_notes(before, after)], [], None
    about = [*_build_loss_notes(before, after), *differences, *_build_step_notes(before, after)]
    if before.steps and after.steps:
        series = _drop_unshared_modules(*_merge_unshared_fields(step_series(before), step_series(after)))
        runs = _Runs(
            *series,
            calls=[calls_per_step(report) for report in (before, after)],
            parts=[phase_parts(report) for report in (before, after)],
            num_steps=min(report.run["num_steps"] for report in (before, after)),
            span_ns=min(map(span_ns, (before, after))),
            waits_ns=max(map(waits_ns, (before, after))),
            device_share=min(map(device_share, (before, after))),
            threshold=threshold,
            all_steps=compare_with_recorded(
                (before.unrecorded_ns, after.unrecorded_ns), (before.usual_ns, after.usual_ns), threshold
            ),
        )
        rows, more_steps = runs.rows(), runs.more_steps()
        # begins are moments: no two recordings share them
        if not differences and before.steps == after.steps and series[0] == series[1]:
            about, more_steps = ["Both are the same recording."], None
            rows = [replace(row, change=0.0, interval=(0.0, 0.0), verdict="same", is_worse=False) for row in rows]
        else:
            about += [
                *_build_operator_notes(rows),
                *_build_module_notes(before, after),
                *_build_all_steps_notes(runs.all_steps),
            ]
    is_unsure = any(row.is_typical_step and row.verdict == "unsure" for row in rows)
    return Comparison(
        before=before.run,
        after=after.run,
        threshold=threshold,
        rows=rows,
        more_steps=more_steps,
        notes=about,
        why_unsure=_explain_unsure(before, after, more_steps) if is_unsure else "",
        fixed_findings=_find_unshared_findings(before, after),
        new_findings=_find_unshared_findings(after, before),
    )


def _explain_unsure(before: RunReport, after: RunReport, more_steps: int | None) -> str:
    """Return a sentence on how to get a verdict on the step."""
    if few := explain_few_unrecorded(before, after):
        return few
    if more_steps is not None:
        return f"A verdict needs about {format_count(more_steps, 'more step')} of each run."
    return (
        "Longer runs would not help: unchanged operators differ as much between these two recordings. Record both "
        "again, one right after the other, on an idle machine."
    )


def _find_unshared_findings(report: RunReport, other: RunReport) -> list[Finding]:
    """Return the findings above low confidence that the other run has not, not even at low confidence.

    A fault may get another id as it shrinks: its line may be unknown then. So findings of one kind are paired.
    """
    if not (report.is_judged and other.is_judged):
        return []
    ids, known = {finding.id for finding in report.findings}, {finding.id for finding in other.findings}
    paired = Counter(finding.kind for finding in other.findings if finding.id not in ids)
    left = list[Finding]()
    for found in report.findings:
        if found.id not in known and paired[found.kind] > 0:
            paired[found.kind] -= 1
        elif found.id not in known and found.confidence != "low":
            left.append(found)
    return left


def _merge_unshared_fields(before: Series, after: Series) -> tuple[Series, Series]:
    """Return both series, summed over shapes and modules if only one of the runs recorded them."""
    for field in ("shapes", "module"):
        sides = (before, after)
        recorded = [any(getattr(key, field) is not None for key in side) for side in sides]
        if recorded[0] != recorded[1]:
            before, after = (sum_over(side, field) for side in sides)
    return before, after


def _drop_unshared_modules(before: Series, after: Series) -> tuple[Series, Series]:
    """Return both series, without modules if only one of the runs recorded them."""
    if all(any(key.is_module for key in side) for side in (before, after)):
        return before, after
    without = [{key: values for key, values in side.items() if not key.is_module} for side in (before, after)]
    return without[0], without[1]


class _Runs:
    """Series of two runs, step by step."""

    def __init__(
        self,
        before: Series,
        after: Series,
        *,
        calls: Sequence[Calls],
        parts: Sequence[Mapping[SeriesKey, float]],
        num_steps: int,
        span_ns: int,
        waits_ns: float,
        device_share: float,
        threshold: float,
        all_steps: StepChange | None,
    ) -> None:
        self._before, self._after, self._threshold = before, after, threshold
        self.all_steps = all_steps
        self._parts, self._num_steps = parts, num_steps
        self._step_ns = max(1.0, min(fmean(before[STEP]), fmean(after[STEP])))
        changes = self._estimate_changes()
        noise_of_host, noise_of_device = (
            estimate_noise([change for key, change in changes.items() if key.is_of_device == is_of_device], calls)
            for is_of_device in (False, True)
        )
        self._intervals = Intervals(
            num_rows=max(1, len(changes)),
            span_ns=span_ns,
            host=noise_of_host,
            device=noise_of_device,
            device_share=device_share,
            waits_ns=waits_ns,
        )
        blocks = find_blocks(before, after, changes, self._intervals)
        self._before, self._after = fold(before, blocks), fold(after, blocks)
        self._changes = self._estimate_changes()
        self._intervals = replace(self._intervals, num_rows=max(1, len(self._changes)))
        self._others = [key for key in self._keys() if key not in self._changes]

    def _keys(self) -> list[SeriesKey]:
        return [key for key in dict.fromkeys([*self._before, *self._after]) if self._matters(key)]

    def _estimate_changes(self) -> dict[SeriesKey, Change]:
        return {key: self._estimate_change(key) for key in self._keys() if self._is_long_enough(key)}

    def rows(self) -> list[ComparisonRow]:
        """Return a row per compared value, those that got worse first."""
        rows = [self._compare_change(change) for change in self._changes.values()]
        rows += [self._row_without_interval(key) for key in self._others]
        if self.all_steps is not None:
            rows = [_step_row(self.all_steps, row.verdict) if row.is_typical_step else row for row in rows]
        return sorted(_add_is_worse(rows, self._threshold, by_all_steps=self.all_steps is not None), key=_sort_key)

    def more_steps(self) -> int | None:
        """Return how many more steps would decide whether the step changed.

        None if that is decided, or if more steps would not decide it.
        """
        if self.all_steps is not None:  # noise between runs does not shrink with more steps
            return None
        change, num_steps = self._changes.get(STEP), min(len(side[STEP]) for side in (self._before, self._after))
        if change is None:
            return MIN_STEPS - self._num_steps
        for exponent in range(_MAX_DOUBLINGS * 4):
            times_longer = 2 ** (exponent / 4)
            half = self._intervals.half_width(change, times_longer)
            if _verdict(change.log, half, self._threshold) != "unsure":
                return math.ceil(num_steps * (times_longer - 1)) or None
        return None

    def _matters(self, key: SeriesKey) -> bool:
        """Return whether a value takes long enough in one of the runs.

        Short device times of an operator are unknown, so an operator that is only in one run need not be new.
        """
        sides = [side for side in (self._before, self._after) if key in side]
        is_known = len(sides) == 2 or key.kind != "operator on device"
        is_known |= any(replace(key, kind="operator") not in side for side in (self._before, self._after))
        is_long = max(fmean(side[key]) for side in sides) >= _MIN_SHARE * self._step_ns
        return key.kind in ("step", "memory") or (is_known and is_long)

    def _is_long_enough(self, key: SeriesKey) -> bool:
        # The end of the last step is unknown where the start of the next one ends it.
        has_values = all(len(side.get(key, ())) >= MIN_STEPS - 1 for side in (self._before, self._after))
        return has_values and self._num_steps >= MIN_STEPS

    def _estimate_change(self, key: SeriesKey) -> Change:
        sides = zip((self._before, self._after), self._parts, strict=True)
        estimates = [_estimate(key, side[key], parts.get(key)) for side, parts in sides]
        return Change(key, *estimates, min_value=1.0 if key == PEAK else _ZERO_SHARE * self._step_ns)

    def _compare_change(self, change: Change) -> ComparisonRow:
        log, half = change.log, self._intervals.half_width(change)
        return _row(
            change.key,
            before=change.before.value,
            after=change.after.value,
            change=math.expm1(log),
            interval=(math.expm1(log - half), math.expm1(log + half)),
            verdict=_verdict(log, half, self._threshold),
        )

    def _row_without_interval(self, key: SeriesKey) -> ComparisonRow:
        """Return the row of a value that one run does not have, or has in too few steps for an interval."""
        sides = zip((self._before, self._after), self._parts, strict=True)
        before, after = (_typical(key, side[key], parts.get(key)) if key in side else None for side, parts in sides)
        verdict = "new" if before is None else "gone" if after is None else "unsure"
        change = after / before - 1 if before and after is not None else None
        return _row(key, before=before, after=after, change=change, interval=None, verdict=verdict)


def _step_row(change: StepChange, of_recorded: str) -> ComparisonRow:
    """Return the row of the typical step by all steps; ``of_recorded`` is the verdict of the recorded ones."""
    interval = (math.expm1(change.shift.low), math.expm1(change.shift.high))
    return _row(
        STEP,
        before=change.before_ns,
        after=change.after_ns,
        change=math.expm1(change.shift.log),
        interval=interval,
        verdict="unsure" if change.is_of_means and change.verdict != of_recorded else change.verdict,
    )


def _add_is_worse(rows: Sequence[ComparisonRow], threshold: float, *, by_all_steps: bool) -> list[ComparisonRow]:
    """Return the rows with whether each got worse.

    A wait did only if the typical step may have, too. Where the verdict on the step rests on all steps, this holds for
    every time: a part of the few recorded steps that got slower is outweighed by others.
    """
    step = next((row for row in rows if row.is_typical_step), None)
    is_no_slower = step is not None and step.verdict in ("faster", "same")

    def is_worse(row: ComparisonRow) -> bool:
        is_part = row.unit == "ns" if by_all_steps else row.kind == "phase" and row.name in _WAITS
        return row.grew_by(threshold) and not (is_part and is_no_slower)

    return [replace(row, is_worse=is_worse(row)) for row in rows]


def _sort_key(row: ComparisonRow) -> tuple[int, int, float, str, str]:
    """Return the sort key of a row.

    Worse rows come first, likely causes before effects. Unchanged ones are sorted by kind, the step first.
    """
    state = 0 if row.is_worse else _STATES[row.verdict]
    size = abs(row.difference) if state < 2 else max(row.before or 0, row.after or 0)
    kind = _KINDS[row.kind]
    return state, kind if state < 2 else -kind, -size, row.name, row.shapes or ""


def _row(key: SeriesKey, **values: Any) -> ComparisonRow:
    unit = "bytes" if key.kind == "memory" else "ns"
    return ComparisonRow(kind=key.kind, name=key.name, shapes=key.shapes, module=key.module, unit=unit, **values)


def _estimate(key: SeriesKey, values: Sequence[float], part: float | None) -> Estimate:
    typical = estimate(values, is_mean=key in (MEAN_STEP, PEAK) or part is not None)
    if key == PEAK:
        return replace(typical, value=max(values))
    return typical if part is None else replace(typical, value=part)


def _typical(key: SeriesKey, values: Sequence[float], part: float | None) -> float:
    return max(values) if key == PEAK else fmean(values) if part is None else part


def _verdict(log: float, half: float, threshold: float) -> str:
    if log - half > 0:
        return "slower"
    if log + half < 0:
        return "faster"
    is_within = -math.log1p(threshold) <= log - half and log + half <= math.log1p(threshold)
    return "same" if is_within else "unsure"


def _build_rank_notes(reports: Sequence[RunReport], shared: frozenset[int]) -> list[str]:
    ranks = [report.run["ranks"] for report in reports]
    if ranks[0] == ranks[1]:
        return []
    before, after = (format_ranks(one) if one else "no rank" for one in ranks)
    ranks_of_both = f"Before has {before}, after {after}"
    if not shared:
        return [f"{ranks_of_both}: none is in both, so that their average ranks are compared."]
    compared = f"{format_ranks(sorted(shared))} {'is' if len(shared) == 1 else 'are'} compared"
    return [f"{ranks_of_both}: of both, only {compared}."]


def _build_device_notes(before: RunReport, after: RunReport) -> list[str]:
    """Return a note if the runs had different devices."""
    sides = [_devices_of(report) for report in (before, after)]
    if None in sides or sides[0] == sides[1]:
        return []
    return [
        f"The devices differ: before ran on {sides[0]}, after on {sides[1]}. What changed may be what these differ by."
    ]


def _devices_of(report: RunReport) -> str | None:
    """Return the names of the devices of a run; None where they are unknown."""
    names = sorted({row.device_name for row in report.ranks if row.device_name})
    if names:
        return first_items(map(sanitize, names), len(names), _MAX_NAMED_DEVICES, ", ")
    return None if any(row.window_ns is not None for row in report.ranks) else "no device"


def _build_loss_notes(before: RunReport, after: RunReport) -> list[str]:
    """Return the reasons why findings of a run are unknown: events that its traces lack may have been lost."""
    sides = {"Before": before, "After": after}
    return [f"{when}: {why}" for when, report in sides.items() for why in report.why_unjudged]


def _build_step_notes(before: RunReport, after: RunReport) -> list[str]:
    notes = []
    for when, report in (("Before", before), ("After", after)):
        num_steps = report.run["num_steps"]
        if not num_steps:
            notes.append(
                f"{when}: no step was recorded, so nothing can be compared. If the steps have a name of their own, "
                "pass it with --step."
            )
        elif num_steps < MIN_STEPS:
            notes.append(f"{when}: {num_steps} of the {MIN_STEPS} steps that an interval needs. {_RECORD_MORE}")
    sizes = [report.run["world_size"] for report in (before, after)]
    if None not in sizes and sizes[0] != sizes[1]:
        notes.append(f"Before had {sizes[0]} ranks in all, after {sizes[1]}.")
    return notes


def _build_all_steps_notes(change: StepChange | None) -> list[str]:
    if change is None:
        return []
    sides = [*zip(("before", "after"), change.num_steps, change.has_recorded, strict=True)]
    before, after = (f"{num:,} {'' if has else 'unrecorded '}steps {when}" for when, num, has in sides)
    bounds = [
        f" The steps {when} include recorded ones, which recording can only have made longer."
        for when, _, has in sides
        if has
    ]
    counted = "mean" if change.is_of_means else "fastest"
    why = "" if change.is_of_means else ", which other processes slow down least"
    means = " and ".join(f"{format_ms(mean_ns)} ms" for mean_ns in change.means_ns)
    return [
        f"The verdict on the step is from {before} and {after}: from the {counted} of each {change.block_steps} or "
        f"more{why}. The means of all of them are {means}.{''.join(bounds)} All other rows are from the recorded steps."
    ]


def _build_operator_notes(rows: Sequence[ComparisonRow]) -> list[str]:
    calls = [row for row in rows if row.kind in ("operator", "kernel")]
    in_one = sum(row.verdict in ("new", "gone") for row in calls)
    if in_one <= len(calls) / 2:
        return []
    return [f"{in_one} of {len(calls)} operators and kernels are in one run only: these may be different programs."]


def _build_module_notes(before: RunReport, after: RunReport) -> list[str]:
    """Return a note if modules were recorded in one of the runs only."""
    if bool(before.modules) == bool(after.modules):
        return []
    return [f"Modules are not compared: they were recorded only {'before' if before.modules else 'after'}."]
