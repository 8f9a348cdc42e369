"""analysis/windows/call_statistics.py: sums of calls that can be added up, and quantiles that stay true."""

import itertools
import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.analysis.windows.call_statistics import (
    MAX_EXACT_CALLS,
    add_quantiles,
    add_quantiles_by_name,
    combine_call_sums,
    sum_calls,
)


def windows_of(*durations_ns, bytes_each=None):
    schema = {"name": pl.String, "dur": pl.Int64, "bytes": pl.Int64}
    return [
        sum_calls(pl.DataFrame([("mm", dur, bytes_each) for dur in one], schema, orient="row"), ["name"], ["bytes"])
        for one in durations_ns
    ]


def together_of(windows):
    """Return the rows of all windows, which are added up in two batches."""
    batches = [combine_call_sums(batch, ["name"], ["bytes"]) for batch in (windows[:2], windows[2:]) if batch]
    return add_quantiles(combine_call_sums(batches, ["name"], ["bytes"]))


def nearest_rank(durations, percent):
    return sorted(durations)[math.ceil(len(durations) * percent / 100) - 1]


@given(st.lists(st.lists(st.integers(0, 10**12), min_size=1, max_size=30), min_size=1, max_size=4))
def test_windows_of_few_calls_add_up_as_if_they_were_one(durations):
    (row,) = together_of(windows_of(*durations)).rows(named=True)
    together = list(itertools.chain.from_iterable(durations))
    assert (row["num_calls"], row["total_ns"], row["max_ns"]) == (len(together), sum(together), max(together))
    assert row["mean_ns"] == pytest.approx(sum(together) / len(together))
    assert [row["p50_ns"], row["p95_ns"]] == [nearest_rank(together, percent) for percent in (50, 95)]


@given(st.integers(0, 2**32), st.integers(1, 10**9))
def test_quantiles_of_many_calls_are_true_to_four_parts_in_a_thousand(seed, longest):
    durations = [(seed * place * 7919) % longest for place in range(MAX_EXACT_CALLS + 1)]
    windows = windows_of(durations)
    (row,) = together_of(windows).rows(named=True)
    assert (row["num_calls"], row["total_ns"], row["max_ns"]) == (len(durations), sum(durations), max(durations))
    for percent in (50, 95):
        assert row[f"p{percent}_ns"] == pytest.approx(nearest_rank(durations, percent), rel=0.004)
    assert len(windows[0]["durations"][0]) <= 256 * 31


def test_a_sum_of_which_no_part_is_known_is_not_known():
    (row,) = together_of(windows_of([1], [2])).rows(named=True)
    assert row["bytes"] is None
    some = [*windows_of([1]), *windows_of([2], bytes_each=8)]
    (row,) = together_of(some).rows(named=True)
    assert row["bytes"] == 8


def test_names_of_several_windows_are_kept_apart():
    schema = {"name": pl.String, "dur": pl.Int64, "bytes": pl.Int64}
    calls = pl.DataFrame([("mm", 10, 1), ("add", 2, None), ("mm", 20, 1)], schema, orient="row")
    rows = together_of([sum_calls(calls, ["name"], ["bytes"])] * 2).sort("name").rows(named=True)
    assert [(row["name"], row["num_calls"], row["p50_ns"], row["bytes"]) for row in rows] == [
        ("add", 2, 2, None),
        ("mm", 4, 10, 4),
    ]


CALLS = st.lists(st.tuples(st.sampled_from(["mm", "add"]), st.sampled_from("abc"), st.integers(0, 1000)), max_size=60)


@given(CALLS, CALLS)
def test_quantiles_of_a_name_cover_all_its_calls_whatever_else_is_split(first, second):
    schema, by = {"name": pl.String, "shapes": pl.String, "dur": pl.Int64}, ["name", "shapes"]
    windows = [sum_calls(pl.DataFrame(calls, schema, orient="row"), by, []) for calls in (first, second)]
    rows = add_quantiles_by_name(combine_call_sums(windows, by, [])).rows(named=True)
    assert {(row["name"], row["shapes"]) for row in rows} == {call[:2] for call in first + second}
    for row in rows:
        own = [dur for name, shapes, dur in first + second if (name, shapes) == (row["name"], row["shapes"])]
        of_name = [dur for name, _, dur in first + second if name == row["name"]]
        for percent in (50, 95):
            assert row[f"p{percent}_ns"] == nearest_rank(own, percent)
            assert row[f"name_p{percent}_ns"] == nearest_rank(of_name, percent)


def test_a_window_without_calls_adds_up_with_others():
    assert [row["total_ns"] for row in together_of(windows_of([], [3], [])).rows(named=True)] == [3]
