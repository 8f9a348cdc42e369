"""A run with many faults at once: the store fails half of all requests, a rank is killed, a disk is full.

At the end every finished trace is in the store, and the log names the rest. ``KINETOSCOPE_FAULT_RUN_S=120`` is the long
form (`make test-long`).
"""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress

import pytest

from kinetoscope.formats.manifest import read_manifest
from kinetoscope.uploads.upload_queue import read_queue
from support.fork_server import KINETOSCOPE_MODULES, READ_SETTINGS, RUN_COMMAND, S3_MODULES, run_forked, start_forked
from support.object_store.s3 import BUCKET, SECRET
from support.polling import wait_for

DURATION_S = float(os.environ.get("KINETOSCOPE_FAULT_RUN_S", "8"))
NUM_RANKS, KILLED, FULL = 4, 1, 2
RANK = """
import os, sys, time
from pathlib import Path
from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
rank = os.environ["RANK"]
os.dup2(os.open(f"rank{rank}.log", os.O_WRONLY | os.O_CREAT), 2)
with Profiler(cyclic_schedule(warmup=0, active=int(sys.argv[2]), repeat=0), JSONTraceHandler(f"node{rank}/traces"),
              upload_to=sys.argv[1], run_name="faults") as profiler:
    for batch in profiler.batches(range(10**9)):
        for part in range(50):
            with profiler.marker("part"):
                pass
        time.sleep(0.02)
        if Path("stop").exists():
            break
"""


@pytest.fixture
def full_disk(tmp_path):
    """A node's folder on a disk that the run fills."""
    folder = tmp_path / f"node{FULL}"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", folder], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"only root can mount a small disk: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def start(tmp_path, rank, environment):
    place = {"RANK": str(rank), "LOCAL_RANK": "0", "GROUP_RANK": str(rank), "TORCHELASTIC_RUN_ID": "faults"}
    place |= {"WORLD_SIZE": str(NUM_RANKS), "LOCAL_WORLD_SIZE": "1"}
    a_sixth = str(int(DURATION_S * 8))  # batches of 20 ms
    arguments = (f"s3://{BUCKET}/faults", a_sixth)
    return start_forked(KINETOSCOPE_MODULES, RANK, *arguments, folder=tmp_path, environment=environment | place)


def wait_for_first_traces(tmp_path):
    folders = [tmp_path / f"node{rank}" / "traces" for rank in range(NUM_RANKS)]
    wait_for(lambda: all(any(folder.glob("ep0*")) for folder in folders), every_s=0.1)


def fill(disk):
    """Fill the disk completely."""
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))


def upload_the_rest(tmp_path, rank, environment):
    """Run `kinetoscope upload`, after the upload process of a killed rank has ended."""
    arguments = ["upload", tmp_path / f"node{rank}", "--retry-for", "30", "--to", f"s3://{BUCKET}/faults"]
    until = time.monotonic() + 120 + DURATION_S
    while time.monotonic() < until:
        program = READ_SETTINGS + RUN_COMMAND
        done = run_forked(S3_MODULES, program, *arguments, environment=environment, timeout_s=300)
        if "Another process" not in done.stdout:
            return done
        time.sleep(0.5)
    raise AssertionError("the upload does not end")


@pytest.mark.timeout(400 + 4 * DURATION_S)
def test_every_finished_trace_is_in_the_store_and_the_rest_is_reported(tmp_path, s3, proxy, full_disk):
    environment = s3.environment(proxy.endpoint)
    ranks = [start(tmp_path, rank, environment) for rank in range(NUM_RANKS)]
    wait_for_first_traces(tmp_path)
    time.sleep(DURATION_S / 2)
    ranks[KILLED].kill()
    fill(full_disk)
    time.sleep(DURATION_S / 2)
    (tmp_path / "stop").touch()
    statuses = [rank.wait(200 + 2 * DURATION_S).returncode for rank in ranks]
    assert statuses == [-signal.SIGKILL if rank == KILLED else 0 for rank in range(NUM_RANKS)]
    assert {"reset", "503", "lost"} <= set(proxy.met)

    rest = [upload_the_rest(tmp_path, rank, environment) for rank in range(NUM_RANKS)]
    assert [done.returncode for done in rest] == [0] * NUM_RANKS, [done.stderr for done in rest]
    num_finished = [check_node(tmp_path, rank, s3) for rank in range(NUM_RANKS)]
    assert min(num_finished) >= 1, num_finished

    logs = [(tmp_path / f"rank{rank}.log").read_text() for rank in range(NUM_RANKS)]
    assert "No space left on device" in logs[FULL]
    assert all(
        line.startswith(("Kinetoscope: ", "kinetoscope ")) for line in (logs[0] + logs[3]).splitlines()
    )  # how the run ended
    assert all(SECRET not in log for log in logs)


def check_node(tmp_path, rank, s3):
    """Every trace that the manifest lists is in the store, byte for byte."""
    traces = tmp_path / f"node{rank}" / "traces"
    [manifest] = read_manifest(traces)
    for trace in manifest.traces:
        content = s3.content(f"faults/faults/traces/{trace.path}")
        assert content == (traces / trace.path).read_bytes()
        assert json.loads(content)["kinetoscope"]["rank"] == rank
    assert not read_queue(tmp_path / f"node{rank}", rank)
    return len(manifest.traces)
