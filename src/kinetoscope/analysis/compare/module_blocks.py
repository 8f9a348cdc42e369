"""Repeated blocks of a model whose times changed alike, as one value of a comparison."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from kinetoscope.analysis.compare.confidence_intervals import Change, Intervals
from kinetoscope.analysis.compare.series import SeriesKey
from kinetoscope.analysis.modules.blocks import find_pattern, format_range

Series = Mapping[SeriesKey, list[float]]


def find_blocks(
    before: Series, after: Series, changes: Mapping[SeriesKey, Change], intervals: Intervals
) -> dict[SeriesKey, list[SeriesKey]]:
    """Return the modules that are compared as one, by the key for all of them.

    They are of one class, their names differ in numbers only, and both runs have them, or only the same one. A module
    is compared by itself if its interval does not contain the median change of its kind.

    Args:
        before: values of the first run by step.
        after: those of the second run.
        changes: changes of modules that take long enough to be compared by themselves.
        intervals: intervals of these changes.
    """
    kinds: defaultdict[tuple[object, ...], list[SeriesKey]] = defaultdict(list)
    for key in dict.fromkeys([*before, *after]):
        if key.is_module:
            kinds[key.kind, find_pattern(key.name), key.class_name, key in before, key in after].append(key)
    blocks = (_leave_out_others(keys, changes, intervals) for keys in kinds.values())
    return {replace(keys[0], name=format_range([key.name for key in keys])): keys for keys in blocks if len(keys) > 1}


def _leave_out_others(
    keys: Sequence[SeriesKey], changes: Mapping[SeriesKey, Change], intervals: Intervals
) -> list[SeriesKey]:
    known = [changes[key] for key in keys if key in changes]
    usual = median(change.log for change in known) if known else 0.0
    others = {change.key for change in known if abs(change.log - usual) > intervals.half_width(change)}
    return [key for key in keys if key not in others]


def fold(series: Series, blocks: Mapping[SeriesKey, Sequence[SeriesKey]]) -> Series:
    """Return the series with the sum of each block instead of its modules."""
    folded = {key for keys in blocks.values() for key in keys}
    sums = {block: _add_up(series[key] for key in keys) for block, keys in blocks.items() if keys[0] in series}
    return {key: values for key, values in series.items() if key not in folded} | sums


def _add_up(values: Iterable[list[float]]) -> list[float]:
    return [sum(of_step) for of_step in zip(*values, strict=True)]
