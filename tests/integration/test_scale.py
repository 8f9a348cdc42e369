"""Many ranks of one run: names never collide, each node merges its own traces, and no rank waits for another."""

import json
import os
import shutil
import subprocess
from collections import Counter

import pytest

from support.fork_server import KINETOSCOPE_MODULES, run_command, start_forked
from support.polling import wait_for
from support.trace_processor.trace_processor import load

# We promise 64 ranks; sixteen, on two nodes, show the same.
NUM_RANKS, PER_NODE, AT_A_TIME = int(os.environ.get("KINETOSCOPE_NUM_RANKS", "16")), 8, 16
# We promise 30 seconds; a shorter stall shows the same.
STALL_S = float(os.environ.get("KINETOSCOPE_STALL_S", "4"))
PRELUDE = """
import os, sys, time
from pathlib import Path
from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
"""
TWO_WINDOWS = """
schedule = cyclic_schedule(warmup=0, active=2, repeat=2)
with Profiler(schedule, JSONTraceHandler("run/traces"), run_name="many") as profiler:
    while sum('"beside"' in path.read_text() for path in Path("run/traces/.manifest").iterdir()) < int(sys.argv[1]):
        time.sleep(0.1)
    for batch in profiler.batches(range(4)):
        with profiler.marker("train"):
            time.sleep(0.001)
"""
STEADY = """
folder, steps = sys.argv[1], []
schedule = cyclic_schedule(warmup=0, active=20, repeat=0)
with Profiler(schedule, JSONTraceHandler(f"{folder}/traces"), run_name="steady") as p:
    last = time.monotonic()
    for batch in p.batches(range(10**9)):
        with p.marker("train"):
            time.sleep(0.005)
        steps.append(time.monotonic() - last)
        last += steps[-1]
        if os.path.exists("stop"):
            break
print(max(steps))
"""


def start(tmp_path, rank, num_ranks, per_node, program, *arguments):
    place = {"RANK": rank, "LOCAL_RANK": rank % per_node, "GROUP_RANK": rank // per_node}
    place |= {"WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": per_node, "TORCHELASTIC_RUN_ID": "scale"}
    environment = os.environ | {name: str(value) for name, value in place.items()}
    return start_forked(KINETOSCOPE_MODULES, PRELUDE + program, *arguments, folder=tmp_path, environment=environment)


def finish(processes, *, says=""):
    """Return the output of the processes. Beside how the run ended, each may log only one line, with ``says`` in it."""
    results = [process.wait(150) for process in processes]
    assert [done.returncode for done in results] == [0] * len(processes), results
    own = ("Kinetoscope: ", "kinetoscope ")
    lines = [line for done in results for line in done.stderr.splitlines() if not line.startswith(own)]
    assert all(says and says in line for line in lines), lines
    return [done.stdout for done in results]


def test_each_rank_writes_its_traces_and_each_node_merges_its_own(tmp_path):
    for first in range(0, NUM_RANKS, AT_A_TIME):
        together = [first + offset for offset in range(AT_A_TIME)]
        ranks = [start(tmp_path, rank, NUM_RANKS, PER_NODE, TWO_WINDOWS, str(first + AT_A_TIME)) for rank in together]
        finish(ranks, says="are merged because they had the same launch and ran at the same time")
    traces = tmp_path / "run" / "traces"
    assert len(list(traces.glob("ep0-ba*-rank*.json"))) == 2 * NUM_RANKS
    others = [f"merged_trace.node{node}.json" for node in range(1, NUM_RANKS // PER_NODE)]
    merged = sorted(traces.glob("merged_trace*.json"))
    assert [path.name for path in merged] == ["merged_trace.json", *others]
    for node, path in enumerate(merged):
        assert ranks_of(path) == dict.fromkeys(range(node * PER_NODE, (node + 1) * PER_NODE), 4)
    run_command("merge", "-o", "all.json", *merged, folder=tmp_path).check_returncode()
    assert ranks_of(tmp_path / "all.json") == dict.fromkeys(range(NUM_RANKS), 4)
    with load(tmp_path / "all.json") as trace:
        assert trace.errors() == {}


def ranks_of(path):
    """Return the number of spans named ``train`` of each rank in a merged trace."""
    return Counter(event["pid"] for event in json.loads(path.read_text())["traceEvents"] if event["name"] == "train")


@pytest.fixture
def stalling_disk(tmp_path):
    """A folder on a file system of its own, which can be frozen."""
    folder, image = tmp_path / "node1", tmp_path / "disk.img"
    folder.mkdir()
    for command in (
        ["truncate", "-s", "64M", str(image)],
        ["mkfs.ext4", "-q", str(image)],
        ["mount", "-o", "loop", str(image), str(folder)],
    ):
        if shutil.which(command[0]) is None:
            pytest.skip(f"a disk that stalls needs {command[0]}")
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a disk that stalls needs root and loop devices: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_disk_stall_of_a_rank_delays_no_step_of_other_ranks(tmp_path, stalling_disk):
    ranks = [start(tmp_path, rank, 2, 1, STEADY, f"node{rank}") for rank in (0, 1)]
    wait_for(lambda: all(traces_of(tmp_path, node) for node in (0, 1)), every_s=0.1)
    num_before = len(traces_of(tmp_path, 0))
    # The shell that freezes the disk also unfreezes it: a failing test must not leave a disk that cannot be unmounted.
    stall = f"fsfreeze -f {stalling_disk}; sleep {STALL_S}; fsfreeze -u {stalling_disk}"
    subprocess.run(["sh", "-c", stall], check=True, capture_output=True, timeout=STALL_S + 30)
    num_after = len(traces_of(tmp_path, 0))
    (tmp_path / "stop").touch()
    longest_step_s, _ = map(float, finish(ranks))
    assert longest_step_s < STALL_S
    assert num_after > num_before
    print(f"longest step of the other rank: {longest_step_s:.3f} s; its traces meanwhile: {num_after - num_before}")


def traces_of(tmp_path, node):
    return list((tmp_path / f"node{node}" / "traces").glob("ep*-rank*.json"))
