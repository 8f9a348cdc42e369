"""Matching of collective calls of several ranks by their order, where they have no sequence number."""

from statistics import median

import polars as pl

_MAX_MISSED_CALLS = 8
"""Largest offset tried between two ranks without steps: the calls that one of them missed at either end."""

_Call = tuple[int, str, int | None]


def assign_call_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Assign the same ``order`` to the same call of all ranks.

    Calls up to the end of the first step that all ranks have recorded count as that step's, from its last call back.
    Ranks may have missed the first calls, or have had other calls in flight, when their recordings began; but none of
    them has missed a later one. Windows of different ranks belong together if they have the same last step. Where there
    are no steps, a rank may also have recorded other last calls: its order is shifted so that the ends of calls differ
    least.

    Args:
        calls: all calls, as `schemas.CALLS` with ``part``, the window of a rank.
    """
    common = pl.col("first_step").max().over("channel", "last_step")
    is_early = pl.col("after").is_null() | (pl.col("after") <= common)
    calls = calls.with_columns(after=pl.when(is_early).then(common).otherwise("after"))
    back = pl.int_range(-pl.len().cast(pl.Int64), 0).over("channel", "part", "after")
    calls = calls.with_columns(order=pl.when(is_early).then(back).otherwise("order"))
    offsets = _find_offsets(
        calls.filter(pl.col("first_step").is_null() & pl.col("sequence").is_null() & pl.col("channel").is_not_null())
    )
    return (
        calls.join(offsets, on=["channel", "part"], how="left", maintain_order="left")
        .with_columns(order=pl.col("order") + pl.when(pl.col("first_step").is_null()).then("offset").fill_null(0))
        .drop("offset")
    )


def _find_offsets(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the ``offset`` to add to the order of the calls of each ``part`` of a ``channel``."""
    found = []
    for (channel,), of_channel in calls.partition_by("channel", as_dict=True).items():
        parts = of_channel.partition_by("part", as_dict=True)
        ends = {part: _ends(of_part) for (part,), of_part in parts.items()}
        longest = max(ends.values(), key=len)
        found += [
            {"channel": channel, "part": part, "offset": _best_offset(ends_of_part, longest)}
            for part, ends_of_part in ends.items()
        ]
    return pl.DataFrame(found, schema={"channel": pl.String, "part": pl.UInt32, "offset": pl.Int64})


def _ends(calls: pl.DataFrame) -> dict[_Call, int]:
    return {
        (order, name, elements): end
        for order, name, elements, end in calls.select("order", "name", "elements", "end").iter_rows()
    }


def _best_offset(calls: dict[_Call, int], others: dict[_Call, int]) -> int:
    """Return the offset with the smallest difference of ends, of those with most calls on both ranks."""
    tried = [
        (_spread_of_ends(calls, others, offset), offset)
        for offset in sorted(range(-_MAX_MISSED_CALLS, _MAX_MISSED_CALLS + 1), key=abs)
    ]
    return min(tried, key=lambda pair: pair[0])[1]


def _spread_of_ends(calls: dict[_Call, int], others: dict[_Call, int], offset: int) -> tuple[bool, float]:
    """Return True if few calls are on both ranks, and the median deviation of the differences of their ends in ns."""
    apart = [
        others[shifted] - end
        for (order, name, elements), end in calls.items()
        if (shifted := (order + offset, name, elements)) in others
    ]
    middle = median(apart) if apart else 0
    return 2 * len(apart) < len(calls), median(abs(one - middle) for one in apart) if apart else 0.0
