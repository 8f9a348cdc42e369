"""Runs with several process groups: the straggler is named, and not the ranks that pass its lateness on."""

import json
from dataclasses import replace

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis.ranks.collectives import CollectiveRow
from kinetoscope.analysis.ranks.stragglers import find_straggler_candidates
from kinetoscope.analysis.ranks.transitive_waits import Wait, find_message_waits, remove_transitive_waits
from trainsim import Fault, Settings, simulate
from trainsim.analyses import analyze_cached, write_changed

MS = 1_000_000
GLOO_THREAD = 9
"""The number of the thread of gloo in simulated runs, less the number of the process."""


def tensor_parallel(rank, num_ranks, every=1):
    fault = Fault(kind="late_device", ranks=(rank,), cost_ns=3 * MS, every=every)
    return Settings(
        num_ranks=num_ranks, num_steps=8, layout="tensor", step_ns=5 * MS, transfer_share=0.003, faults=(fault,)
    )


@pytest.mark.parametrize(("rank", "num_ranks", "every"), [(1, 4, 1), (2, 4, 1), (1, 8, 1), (6, 8, 2)])
def test_only_the_straggler_is_in_the_table_not_the_ranks_that_wait_for_it(rank, num_ranks, every):
    report = analyze_cached(tensor_parallel(rank, num_ranks, every))[1]
    assert [(row.rank, row.cause) for row in report.stragglers] == [(rank, "device")]
    assert report.findings[0].where.ranks == (rank,)
    assert report.stragglers[0].cost_ns_per_step == pytest.approx(report.findings[0].saving_ns_per_step, rel=0.2)


@pytest.mark.parametrize(
    ("description", "named"),
    [
        ("mesh_tp", " (tp group) "),
        ("tensor", " (tensor group) "),
        ("undefined", "rank 1 delays"),
        (None, "rank 1 delays"),
    ],
)
def test_the_title_names_the_group_as_torch_does(description, named, tmp_path):
    def renamed(trace):
        for group in trace["distributedInfo"]["pg_config"]:
            if group["pg_desc"] == "tensor":
                group["pg_desc"] = description

    folder = write_changed(renamed, tensor_parallel(1, 4), tmp_path)
    title = kinetoscope.analyze(folder, cache=False).findings[0].title
    assert named in title


def test_no_group_is_named_where_all_ranks_are_in_one():
    fault = Fault(kind="late_device", ranks=(1,), cost_ns=3 * MS)
    report = analyze_cached(Settings(num_ranks=4, num_steps=8, layout="sharded", step_ns=5 * MS, faults=(fault,)))[1]
    assert report.findings[0].title.startswith("Straggler: rank 1 delays")


def without_groups(run, folder, change):
    """Analyze a run on CPUs with another list of groups in each trace."""
    for path in run.write(folder):
        trace = json.loads(path.read_text())
        change(trace["distributedInfo"], trace["distributedInfo"]["rank"])
        path.write_text(json.dumps(trace))
    return kinetoscope.analyze(folder, cache=False)


def late_on_cpu():
    fault = Fault(kind="late_host", ranks=(1,), cost_ns=4 * MS)
    return simulate(Settings(num_ranks=4, num_steps=8, has_device=False, faults=(fault,)))


def pair_of(rank):
    return {
        "pg_name": str(1 + rank // 2),
        "pg_desc": "mesh_tp",
        "pg_size": 2,
        "ranks": [rank // 2 * 2, rank // 2 * 2 + 1],
    }


def test_calls_of_gloo_are_not_joined_where_their_group_is_unknown(tmp_path):
    """A rank in two groups: the spans of gloo do not contain which one each is of."""

    def add_pairs(about, rank):
        about["pg_config"].append(pair_of(rank))

    report = without_groups(late_on_cpu(), tmp_path, add_pairs)
    assert {row.num_ranks for row in report.collectives} == {1}
    assert report.stragglers == []


def test_calls_of_gloo_are_joined_by_the_threads_of_their_group(tmp_path):
    def add_pairs(about, rank):
        about["pg_config"] = [
            about["pg_config"][0] | {"threads": [4000 + rank + GLOO_THREAD]},
            pair_of(rank) | {"threads": [17]},
        ]

    report = without_groups(late_on_cpu(), tmp_path, add_pairs)
    assert {(row.group, row.num_ranks) for row in report.collectives} == {("0", 4)}
    assert [(row.rank, row.cause) for row in report.stragglers] == [(1, "host")]


def test_calls_are_joined_where_all_groups_have_the_same_ranks(tmp_path):
    def add_another(about, rank):
        about["pg_config"].append(about["pg_config"][0] | {"pg_name": "1"})

    report = without_groups(late_on_cpu(), tmp_path, add_another)
    assert {row.num_ranks for row in report.collectives} == {4}


def row(*starts, ends, waits):
    ranks = tuple(rank for rank, _ in starts)
    return CollectiveRow(
        group=None, sequence=None, step=1, name="all_reduce", bytes=None, num_ranks=len(ranks), ranks=ranks,
        starts_ns=tuple(start for _, start in starts), ends_ns=(ends,) * len(ranks), skew_ns=0, transfer_ns=0,
        waits_ns=waits, late_rank=max(starts, key=lambda one: one[1])[0], bandwidth_bytes_per_s=None,
    )  # fmt: skip


def test_a_wait_is_passed_on_only_until_the_next_call_in_common():
    waited = row((0, 10), (1, 60), ends=61, waits=(50, 0))
    passed_on = row((0, 70), (2, 20), ends=71, waits=(0, 50))
    own = row((0, 120), (2, 80), ends=121, waits=(0, 40))
    first, second, third = remove_transitive_waits([waited, passed_on, own])
    assert first == waited
    assert (second.starts_ns, second.waits_ns) == ((20, 20), (0, 0))
    assert third == own


def test_a_rank_is_as_late_to_the_next_call_as_the_others_have_not_waited_for_it():
    """Rank 2 computes during the first call, and is not later for it."""
    waited = row((0, 10), (1, 60), ends=61, waits=(50, 0))
    computed = row((0, 70), (2, 20), ends=71, waits=(0, 10))
    later = row((0, 110), (2, 72), ends=111, waits=(0, 38))
    assert remove_transitive_waits([waited, computed, later])[2].waits_ns == (0, 0)


def test_ranks_that_wait_for_a_message_pass_the_wait_on():
    other = row((0, 5), (2, 5), (3, 5), ends=6, waits=(0, 0, 0))
    late = row((0, 70), (2, 20), ends=71, waits=(0, 50))
    assert remove_transitive_waits([other, late], [Wait(0, 60, 50)])[1].waits_ns == (0, 0)
    assert remove_transitive_waits([other, late], [Wait(0, 80, 50)])[1] == late


def test_receivers_wait_for_messages_while_they_compute_nothing():
    parts = [
        {"call": 1, "name": "send", "rank": 0, "source": 0, "begin": 90, "paused_from": 90, "paused_until": 95},
        {"call": 1, "name": "send", "rank": 1, "source": 0, "begin": 20, "paused_from": 30, "paused_until": 99},
        {"call": 2, "name": "all_reduce", "rank": 1, "source": None, "begin": 1, "paused_from": 1, "paused_until": 9},
    ]
    assert find_message_waits(pl.DataFrame(parts)) == [Wait(rank=1, until_ns=90, wait_ns=60)]


def test_a_cause_is_judged_among_the_ranks_of_the_group():
    """Ranks 2 and 3 have another stage of a pipeline, with more to compute."""
    report = analyze_cached(tensor_parallel(1, 4))[1]
    calls = [call for call in report.collectives if call.ranks in ((0, 1), (2, 3))]
    steps = [
        replace(step, device_compute_ns=step.device_compute_ns + 10 * MS * (step.rank > 1)) for step in report.steps
    ]
    assert [late.cause for late in find_straggler_candidates(calls, steps).rows if late.rank == 1] == ["device"]
