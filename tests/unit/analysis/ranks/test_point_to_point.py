"""analysis/ranks/point_to_point.py: sends and receives, joined by source, destination and order."""

from collections import Counter

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis.ranks.point_to_point import bound_clock_shifts
from trainsim import Settings
from trainsim.analyses import analyze_cached, write_changed

MS = 1_000_000


def pipeline(**settings):
    """Return a balanced pipeline of four stages."""
    plain = {"num_ranks": 4, "layout": "pipeline", "pipeline": "1F1B", "num_microbatches": 4, "num_layers": 2}
    return Settings(**(plain | {"num_steps": 6, "step_ns": 10 * MS, "transfer_share": 0.001} | settings))


def pairs_in(report):
    return Counter(row.ranks for row in report.collectives if row.num_ranks == 2)


def is_communication(event):
    return str(event.get("name")).startswith(("nccl", "record_param_comms"))


ALL_PAIRS = {(rank, rank + 1): 6 * 2 * 4 for rank in range(3)}


def test_messages_of_neighbours_are_joined():
    assert pairs_in(analyze_cached(pipeline())[1]) == ALL_PAIRS


def test_a_receive_ends_after_its_send_started():
    report = analyze_cached(pipeline(offset_ns=5 * MS))[1]
    for row in (row for row in report.collectives if row.num_ranks == 2):
        assert min(row.ends_ns) >= max(row.starts_ns) - 30_000
        assert (row.skew_ns, row.transfer_ns) == (
            max(row.starts_ns) - min(row.starts_ns),
            max(row.ends_ns) - max(row.starts_ns),
        )


def test_messages_bound_the_clocks_of_ranks():
    run, report = analyze_cached(pipeline(offset_ns=50 * MS))
    for rank in run.ranks[1:]:
        shift = report.clock_shifts[rank.rank]
        assert abs(shift.shift_ns + rank.offset_ns) <= shift.bound_ns <= MS


def test_ranks_of_messages_are_those_of_their_group(tmp_path):
    """A group of ranks 0, 2, 4, 6 numbers them 0 to 3."""

    def renumbered(trace):
        about = trace["distributedInfo"]
        about |= {"rank": 2 * about["rank"], "world_size": 8}
        for group in about["pg_config"]:
            group["ranks"] = [2 * rank for rank in group["ranks"]]

    report = kinetoscope.analyze(write_changed(renumbered, pipeline(), tmp_path), cache=False)
    assert pairs_in(report) == {(2 * first, 2 * second): count for (first, second), count in ALL_PAIRS.items()}


def test_messages_without_a_peer_are_not_joined(tmp_path):
    def without_peers(trace):
        for event in filter(is_communication, trace["traceEvents"]):
            for name in ("Src Rank", "Dst Rank"):
                event["args"].pop(name, None)
            event["name"] = event["name"].split(" ")[0]

    report = kinetoscope.analyze(write_changed(without_peers, pipeline(), tmp_path), cache=False)
    assert pairs_in(report) == {}


def test_messages_with_peers_in_args_alone_are_joined(tmp_path):
    def without_titles(trace):
        for event in filter(is_communication, trace["traceEvents"]):
            event["name"] = event["name"].split(" ")[0]

    report = kinetoscope.analyze(write_changed(without_titles, pipeline(), tmp_path), cache=False)
    assert pairs_in(report) == ALL_PAIRS


@pytest.mark.parametrize("ahead_ns", [-700, 0, 5_000])
def test_messages_in_both_directions_bound_two_clocks_from_both_sides(ahead_ns):
    def message(call, source, destination, begin, end):
        shift = {0: 0, 1: ahead_ns}
        return [
            {"call": call, "rank": source, "source": source, "begin": begin + shift[source], "end": 0},
            {"call": call, "rank": destination, "source": source, "begin": 0, "end": end + shift[destination]},
        ]

    parts = [*message(0, 0, 1, 1_000, 1_100), *message(1, 0, 1, 3_000, 9_000), *message(2, 1, 0, 5_000, 5_060)]
    shift_ns, bound_ns = bound_clock_shifts(pl.DataFrame(parts), {0: 0})[1]
    assert bound_ns == 80
    assert abs(shift_ns + ahead_ns) <= bound_ns


def test_messages_in_one_direction_do_not_bound_a_clock():
    parts = [
        {"call": 0, "rank": 0, "source": 0, "begin": 1, "end": 2},
        {"call": 0, "rank": 1, "source": 0, "begin": 1, "end": 3},
    ]
    assert bound_clock_shifts(pl.DataFrame(parts), {0: 0}) == {}
