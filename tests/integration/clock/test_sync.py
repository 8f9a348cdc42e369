"""Clocks that really differ, compared through a run's store: the true offset is within the stated bound.

``KINETOSCOPE_CLOCK_RUNS=100`` makes 100 measurements; `make test` makes fewer.
"""

import json
import os
from functools import cache

import pytest

from support.fork_server import run_command
from support.free_ports import free_port
from support.two_clocks.hosts import (
    IN_A_NETWORK_NAMESPACE,
    IN_A_TIME_NAMESPACE,
    TRUE_IN_NAMESPACE,
    compare,
    faketime,
    network_namespaces,
    start_rank,
    unavailable,
)

pytest.importorskip("torch")
NUM_RUNS = int(os.environ.get("KINETOSCOPE_CLOCK_RUNS", "10"))
THREE_HOURS_AND_100_PPM = faketime("+3h x1.0001")


@cache
def cannot(*commands):
    return unavailable(*map(list, commands))


def skip_unless(*commands):
    if reason := cannot(*map(tuple, commands)):
        pytest.skip(reason)


def check(lines, largest_bound_ns):
    relation, *runs = lines
    assert relation == {"same_clock": False}
    assert len(runs) == NUM_RUNS
    within = [abs(run["error_ns"]) <= run["bound_ns"] + run["width_ns"] for run in runs]
    assert sum(within) >= 0.99 * NUM_RUNS, runs
    assert min(run["bound_ns"] for run in runs) < largest_bound_ns


def test_processes_of_one_boot_and_namespace_share_their_clock():
    assert compare([], "0", 0) == [{"same_clock": True}]


def test_true_offset_of_hours_in_a_time_namespace_is_within_the_bound():
    skip_unless(IN_A_TIME_NAMESPACE)
    check(compare(IN_A_TIME_NAMESPACE, TRUE_IN_NAMESPACE, NUM_RUNS), 200_000)


def test_clocks_hours_apart_and_drifting_are_within_the_bound_with_their_drift():
    skip_unless(THREE_HOURS_AND_100_PPM)
    lines = compare(THREE_HOURS_AND_100_PPM, "kernel", NUM_RUNS)
    check(lines, 200_000)
    assert abs(lines[-1]["drift_ppm"] + 100) <= lines[-1]["drift_bound_ppm"], lines


def test_true_offset_is_within_the_bound_over_a_slow_network():
    skip_unless(IN_A_TIME_NAMESPACE, IN_A_NETWORK_NAMESPACE)
    with network_namespaces() as (near, far):
        check(compare([*far, *IN_A_TIME_NAMESPACE], TRUE_IN_NAMESPACE, NUM_RUNS, before_rank0=near), 2_000_000)


RANK = """
import os, sys, time
import torch.distributed as dist
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
rank = os.environ["RANK"]
dist.init_process_group("gloo")
def one_window(state):
    return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch == 29 else ProfilerAction.ACTIVE
with Profiler(one_window, JSONTraceHandler(f"node{rank}/traces", merged_trace_filename=None)) as profiler:
    for batch in profiler.batches(range(30)):
        time.sleep(0.02)
        profiler.marker("arrives").instant()
        dist.barrier()
        profiler.marker("leaves").instant()
"""


def run_ranks(tmp_path, before_rank1, program=RANK):
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "two-clocks", "OMP_NUM_THREADS": "1"}
    ranks = []
    for rank, before in enumerate(([], before_rank1)):
        environment = {**os.environ, **common, "RANK": str(rank), "GROUP_RANK": str(rank)}
        ranks.append(start_rank(before, program, folder=tmp_path, environment=environment))
    ended = [rank.wait(90) for rank in ranks]
    return (
        sorted(tmp_path.glob("node*/traces/*.json")),
        [rank.stderr for rank in ended],
        [rank.returncode for rank in ended],
    )


def moments(trace, name, rank):
    events = [event for event in trace["traceEvents"] if event["name"] == name and event["pid"] == rank]
    return sorted(event["ts"] for event in events)


def test_the_merged_trace_of_two_clocks_is_on_rank_0s_and_states_the_bound(tmp_path):
    skip_unless(THREE_HOURS_AND_100_PPM)
    files, errors, statuses = run_ranks(tmp_path, THREE_HOURS_AND_100_PPM)
    assert statuses == [0, 0], errors
    run_command("merge", "-o", "merged.json", *files, folder=tmp_path).check_returncode()
    apart = [json.loads(path.read_text())["kinetoscope"]["clock"]["beside_rank0"] for path in files]
    assert [comparison["same_clock"] for comparison in apart] == [True, False]
    trace = json.loads((tmp_path / "merged.json").read_text())
    [clock] = trace["kinetoscope"]["clocks"]
    assert clock["rank"] == 1
    assert clock["bound_ns"] == apart[1]["bound_ns"]
    # No rank leaves a barrier before the other one arrives, however long that takes; hours and a drift would shift all.
    for rank in (0, 1):
        pairs = zip(moments(trace, "arrives", rank), moments(trace, "leaves", 1 - rank), strict=True)
        assert all(arrived_us < left_us + 10_000 for arrived_us, left_us in pairs)


def test_a_rank_that_never_answers_does_not_delay_the_others(tmp_path):
    skip_unless(IN_A_TIME_NAMESPACE)
    dies = RANK.replace("time.sleep(0.02)", "time.sleep(0.02); batch == 5 and rank == '1' and os._exit(9)")
    files, errors, statuses = run_ranks(tmp_path, IN_A_TIME_NAMESPACE, dies.replace("dist.barrier()", "None"))
    assert statuses == [0, 9], errors
    assert [path.name for path in files] == ["ep0-ba30-rank0.json"]
    assert "Traceback" not in errors[0]
