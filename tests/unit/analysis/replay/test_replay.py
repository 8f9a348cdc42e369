"""analysis/replay/replay.py: the replay of any graph."""

import subprocess
import sys

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinetoscope
from kinetoscope.analysis.replay.dependencies import Dependencies
from kinetoscope.analysis.replay.replay import DROPPED, PARTS, Change, ReplayGraph, replay_times
from reference import replay
from trainsim import Settings, simulate


def replayed(times, edges):
    """Return the new times; an edge is its source, its target, its weight and its weight after the change."""
    frame = pl.DataFrame(edges, schema=["source", "target", "weight", "changed"], orient="row")
    return replay_times(pl.Series(times, dtype=pl.Int64), frame).to_list()


def test_a_moment_comes_as_much_earlier_as_what_it_waited_for():
    fetch, launch, kernel_end = 0, 10, 25
    edges = [(0, 1, 10, 4), (1, 2, 12, 12)]  # the kernel began 3 after its launch, which nothing explains
    assert replayed([fetch, launch, kernel_end], edges) == [0, 4, 19]


def test_a_moment_waits_for_the_last_of_several():
    edges = [(0, 2, 5, 5), (1, 2, 0, 0), (0, 1, 20, 1)]
    assert replayed([0, 20, 20], edges) == [0, 1, 5]


def test_removed_edge_needs_nothing():
    assert replayed([0, 50, 60], [(0, 2, 10, 10), (1, 2, 10, DROPPED)]) == [0, 50, 10]


def test_moments_that_wait_for_each_other_are_an_error():
    with pytest.raises(ValueError):
        replayed([0, 0], [(0, 1, 0, 0), (1, 0, 0, 0)])


def test_circular_waits_of_a_damaged_recording_are_replayed():
    nodes = pl.DataFrame({"time": [5, 9, 9], "is_end": [False, False, True], "rank": [0, 0, 0]})
    edges = [(0, 1, "host", 4, 0), (1, 0, "launch", -4, 0), (1, 2, "device", 0, 0), (2, 1, "sync", 0, 0)]
    schema = {"source": pl.UInt32, "target": pl.UInt32, "kind": pl.String, "weight": pl.Int64, "rank": pl.Int64}
    part = Dependencies(nodes, pl.DataFrame(edges, schema=schema, orient="row"), 0, 0)
    calls = {"part": pl.UInt32, "row": pl.UInt32, "call": pl.UInt32, "rank": pl.Int64, "begin": pl.Int64}
    calls |= {"end": pl.Int64, "is_launched": pl.Boolean, "step": pl.Int64, "name": pl.String}
    graph = ReplayGraph.join([part], pl.DataFrame(schema=calls))
    assert graph.replay().to_list() == [5, 9, 9]
    assert graph.edges["kind"].to_list() == ["host", "device"]


def test_an_edge_from_nowhere_is_an_error():
    with pytest.raises(ValueError, match="no node"):
        replayed([0, 0], [(0, 7, 0, 0)])


@st.composite
def graphs(draw):
    times = sorted(draw(st.lists(st.integers(0, 1000), min_size=1, max_size=12)))
    places = st.integers(0, len(times) - 1)
    pairs = (
        draw(st.lists(st.tuples(places, places).filter(lambda pair: pair[0] < pair[1]), max_size=20))
        if len(times) > 1
        else []
    )
    changed = st.integers(0, 200) | st.just(DROPPED)
    return times, [(source, target, draw(st.integers(0, 200)), draw(changed)) for source, target in pairs]


@given(graphs())
def test_any_graph_is_replayed_as_documented_and_does_not_change_without_a_change(graph):
    times, edges = graph
    assert replayed(times, edges) == replay.replay_times(times, edges)
    same = [(source, target, weight, weight) for source, target, weight, _ in edges]
    assert replayed(times, same) == times


MANY_FASTER = """
import resource
import polars as pl
from kinetoscope.analysis.replay.replay import Change, ReplayGraph

names = [f"gemm_{number}" for number in range(12)]
nodes = pl.DataFrame({"time": range(10_001)}).with_columns(rank=0, window=0, is_end=True)
kernels = pl.DataFrame({"source": range(10_000)}).with_columns(
    target=pl.col("source") + 1, kind=pl.lit("device"), weight=1, rank=0, is_communication=False, is_entry=False
)
kernels = kernels.with_columns(weight=pl.lit(3), name=pl.format("gemm_{}", pl.col("source") % 12))
graph = ReplayGraph(nodes.with_columns(pl.col("time") * 3), kernels)
assert graph.saving_ns(Change(faster={names[0]: 3.0})) == 2 * 834
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert graph.saving_ns(Change(faster=dict.fromkeys(names, 3.0))) == 2 * 10_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_replay_with_many_kernels_faster_takes_little_more_memory_than_with_one():
    done = subprocess.run([sys.executable, "-c", MANY_FASTER], capture_output=True, text=True, timeout=100, check=True)
    assert int(done.stdout) < 50  # MB; it was 1,100 for twelve kernels, and four times as much for two more


def test_removed_cpu_time_gives_the_same_run_next_to_a_change_without_effect(tmp_path):
    """Most replays take another way than those with operators that are faster."""
    simulate(Settings(num_ranks=2, num_steps=4)).write(tmp_path)
    graph, as_it_is = kinetoscope.analyze(tmp_path, cache=False).graph, []
    for part in PARTS:
        alone = graph.replay(Change(without=frozenset([part])))
        beside = graph.replay(Change(without=frozenset([part]), faster={"no such operator": 0.5}))
        assert alone.equals(beside), part
        as_it_is.append(alone.equals(graph.replay()))
    assert not all(as_it_is)
