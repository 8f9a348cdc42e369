"""Starts of a run, one after another and at the same time, in one folder: none takes another one's data."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from kinetoscope.core.job import ranks
from support.fork_server import KINETOSCOPE_MODULES, TORCH_MODULES, run_command, run_with_torch, start_forked
from support.free_ports import free_port

# Trains in a folder, and kills itself or ends in a batch. If a file is named, it waits for that first.
TRAIN = """
import os, sys, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder, name, how = sys.argv[1:4]
handler = JSONTraceHandler(folder + "/traces", "ep{epoch}-ba{batch}-" + name + "-rank{rank}.json")
with Profiler(lambda state: ProfilerAction.ACTIVE, handler, strict=True) as profiler:
    for batch in profiler.batches(range(3)):
        with profiler.marker(name):
            pass
    print(os.getpid(), flush=True)
    if how == "wait":
        sys.stdin.readline()
    if how == "kill":
        os.kill(os.getpid(), 9)
"""


def own_pid_namespace() -> list[str]:
    """Return the command that runs another one with the same pid each time, as in containers; skips the test if that is
    not possible."""
    for options in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *options, "--pid", "--fork"]
        try:
            if subprocess.run([*command, "true"], capture_output=True, timeout=60).returncode == 0:
                return command
        except FileNotFoundError:
            break
    pytest.skip("needs a pid namespace of its own: unshare --pid")


def start_in_container(tmp_path: Path, name: str, how: str) -> subprocess.Popen:
    """Return a process with pid 2 in a pid namespace of its own, under a shell with pid 1."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    command = [sys.executable, str(script), str(tmp_path / "run"), name, how]
    return subprocess.Popen(
        [*own_pid_namespace(), "sh", "-c", '"$@"; exit $?', "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kinetoscope(*arguments: object, within: tuple[str, ...] | list[str] = ()) -> subprocess.CompletedProcess:
    if not within:
        return run_command(*arguments)
    command = [*within, sys.executable, "-m", "kinetoscope", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def span_names(trace: Path) -> set[str]:
    return {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"}


def test_a_second_start_with_the_same_pid_keeps_the_files_of_the_killed_first_one(tmp_path):
    first = start_in_container(tmp_path, "first", "kill")
    pid, _ = first.communicate(timeout=120)
    second = start_in_container(tmp_path, "second", "end")
    same_pid, log = second.communicate(timeout=120)
    assert (pid, first.returncode, second.returncode) == (same_pid, 128 + signal.SIGKILL, 0), log
    assert f"kinetoscope recover {tmp_path / 'run'}" in log
    done = kinetoscope("recover", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    (recovered,) = (tmp_path / "run" / "traces").glob("*first*")
    assert "first" in span_names(recovered)
    (saved,) = (tmp_path / "run" / "traces").glob("*second*")
    assert "second" in span_names(saved)


def test_a_process_that_lives_in_another_container_is_not_recovered(tmp_path):
    running = start_in_container(tmp_path, "alive", "wait")
    assert running.stdout is not None
    running.stdout.readline()
    try:
        done = kinetoscope("recover", tmp_path / "run", "--other-hosts", within=own_pid_namespace())
        assert "still run" in done.stdout, done.stderr
        assert len(list((tmp_path / "run" / "live").iterdir())) == 1
    finally:
        _, log = running.communicate("\n", timeout=120)
    assert running.returncode == 0, log
    assert not (tmp_path / "run" / "live").exists()


WITH_WORKERS = """
import multiprocessing, os, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder = sys.argv[1]
with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler(folder + "/traces"), strict=True) as profiler:
    for batch in profiler.batches(range(2)):
        worker = multiprocessing.get_context("fork").Process(target=os.getpid)
        worker.start()
        worker.join()
    print("worked", flush=True)
    sys.stdin.readline()
"""


def test_a_forked_worker_that_ends_does_not_make_its_parent_look_dead(tmp_path):
    running = subprocess.Popen(
        [sys.executable, "-c", WITH_WORKERS, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    running.stdout.readline()
    try:
        assert "still run" in kinetoscope("recover", tmp_path / "run").stdout
    finally:
        running.communicate("\n", timeout=120)
    assert running.returncode == 0


def test_a_live_folder_of_the_same_name_is_not_deleted(tmp_path, monkeypatch, caplog):
    from kinetoscope import Profiler, ProfilerAction
    from kinetoscope.testing import MemoryTraceHandler

    monkeypatch.setattr(ranks, "_new_start", lambda: "twice")
    (tmp_path / "live" / "twice").mkdir(parents=True)
    (tmp_path / "live" / "twice" / "somebody").write_text("else's")
    with Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), spool_folder=tmp_path):
        pass
    assert (tmp_path / "live" / "twice" / "somebody").read_text() == "else's"
    assert "cannot be used" in caplog.text
    assert os.listdir(tmp_path / "live") == ["twice"]


# -- ranks that find each other ------------------------------------------------------------------------------------

# One rank; with "store" it has a process group. It continues when all ranks have seen the others and, with a store,
# agreed.
RANK = """
import os, sys, time
from pathlib import Path
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction

folder, how = sys.argv[1:3]
settings = {"overwrite": True} if "overwrite" in how else {}
if "store" in how:
    import torch.distributed
    torch.distributed.init_process_group("gloo")
if "url" in how:
    settings |= {"remote_file_name": None, "merged_trace_remote_file_name": f"file://{folder}/store/merged.json"}
handler = JSONTraceHandler(folder + "/traces", **settings)
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
manifests = Path(folder, "traces", ".manifest")

def wait_until(condition):
    until = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)

def last_start(rank):
    manifest = manifests / f"rank{rank}.jsonl"
    *before, last = manifest.read_text().split('"started"') if manifest.exists() else ("",)
    return last if len(before) == 1 + ("overwrite" in how) else ""

with Profiler(lambda state: ProfilerAction.ACTIVE, handler) as profiler:
    if "alone" not in how:
        wait_until(lambda: all('"beside"' in last_start(rank) for rank in range(world_size)))
    if "store" in how:
        wait_until(lambda: all('"agreed"' in last_start(rank) for rank in range(world_size)))
    for batch in profiler.batches(range(3)):
        with profiler.marker(f"of rank {rank}"):
            pass
    if f"kill{rank}" in how:
        os.kill(os.getpid(), 9)
"""
WRAPPED = ["timeout", "200", "bash", "-c", '"$@"; exit $?', "bash"]


def rank_script(tmp_path: Path) -> Path:
    """It ends at once when it is done: taking apart what was imported, and looking for garbage in it before, takes as
    long as half of the import of torch."""
    script = tmp_path / "rank.py"
    script.write_text(f"import gc\ngc.disable()\n{RANK}\nos._exit(0)\n")
    return script


def run_ranks(tmp_path: Path, how: str, *, port: int = 0, ranks: tuple[int, ...] = (0, 1)) -> list[str]:
    """Two ranks, each with a parent of its own, as with ``for rank in 0 1; do timeout 200 bash -c ... & done``.

    Returns what each wrote to its log.
    """
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(port or free_port()), "OMP_NUM_THREADS": "1"}
    own = [os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in ranks]
    imported = TORCH_MODULES if "store" in how else KINETOSCOPE_MODULES
    running = [start_forked(imported, RANK, tmp_path / "run", how, environment=environment) for environment in own]
    ended = [process.wait(300) for process in running]
    logs = [process.stderr for process in ended]
    statuses = [-signal.SIGKILL if f"kill{rank}" in how else 0 for rank in ranks]
    assert [process.returncode for process in ended] == statuses, logs
    return logs


def spans_by_rank(trace: Path) -> dict[int, int]:
    """Return the number of each rank's own spans in a merged trace."""
    events = json.loads(trace.read_text())["traceEvents"]
    return Counter(
        event["pid"] for event in events if event["ph"] == "X" and event["name"] == f"of rank {event['pid']}"
    )


def notes_of(trace: Path) -> str:
    return " ".join(json.loads(trace.read_text())["kinetoscope"]["notes"])


def merged_trace(tmp_path: Path) -> Path:
    return tmp_path / "run" / "traces" / "merged_trace.json"


def test_ranks_below_wrappers_are_merged_under_torchrun(tmp_path):
    torchrun = "from torch.distributed.run import main\nmain()"
    options = ["--standalone", "--nproc-per-node", "2", "--no-python", *WRAPPED]
    command = [sys.executable, rank_script(tmp_path), tmp_path / "run", "store"]
    done = run_with_torch(torchrun, *options, *command, environment=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert spans_by_rank(merged_trace(tmp_path)) == {0: 3, 1: 3}
    assert "same launch" not in notes_of(merged_trace(tmp_path))


def test_simultaneous_ranks_without_a_store_are_merged_with_a_note_in_the_trace(tmp_path):
    logs = run_ranks(tmp_path, "no process group")
    assert spans_by_rank(merged_trace(tmp_path)) == {0: 3, 1: 3}
    sentence = "Ranks 0-1 are merged because they had the same launch and ran at the same time"
    assert sentence in notes_of(merged_trace(tmp_path))
    assert sentence in logs[0]
    assert sentence in kinetoscope("info", merged_trace(tmp_path)).stdout


def test_merged_trace_without_an_existing_rank_is_marked_in_header_log_and_info(tmp_path):
    port = free_port()
    run_ranks(tmp_path, "alone", port=port, ranks=(1,))
    (log,) = run_ranks(tmp_path, "alone", port=port, ranks=(0,))
    assert spans_by_rank(merged_trace(tmp_path)) == {0: 3}
    sentence = "Rank 1 is not in this trace, though its files are in the same folder"
    assert sentence in notes_of(merged_trace(tmp_path))
    assert sentence in log
    assert sentence in kinetoscope("info", merged_trace(tmp_path)).stdout
    assert f"kinetoscope merge {tmp_path}/run/traces -o all.json" in log
    by_hand = kinetoscope("merge", tmp_path / "run" / "traces", "-o", tmp_path / "all.json")
    assert by_hand.returncode == 0, by_hand.stderr
    assert spans_by_rank(tmp_path / "all.json") == {0: 3, 1: 3}


# -- a kill, and what `recover` makes of it ------------------------------------------------------------------------


def test_recovering_one_rank_keeps_the_others_in_the_merged_trace_and_queues_it(tmp_path):
    run_ranks(tmp_path, "store kill1 url")
    assert spans_by_rank(merged_trace(tmp_path)) == {0: 3}
    done = kinetoscope("recover", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert spans_by_rank(merged_trace(tmp_path)) == {0: 3, 1: 3}
    (entry,) = (tmp_path / "run" / ".uploads" / "rank1").glob("*.json")
    assert json.loads(entry.read_text())["path"] == "traces/merged_trace.json"
    assert json.loads(entry.read_text())["url"].endswith("/store/merged.json")


@pytest.mark.parametrize("how", ["store", "no process group"])
def test_recovering_a_killed_attempt_does_not_touch_the_merged_trace_of_the_next_one(tmp_path, how):
    port = free_port()
    run_ranks(tmp_path, f"{how} kill0 kill1", port=port)
    logs = run_ranks(tmp_path, f"{how} overwrite", port=port)
    finished = merged_trace(tmp_path).read_bytes()
    assert spans_by_rank(merged_trace(tmp_path)) == {0: 3, 1: 3}
    for text in (notes_of(merged_trace(tmp_path)), logs[0]):
        assert ("same launch" in text) == (how != "store"), "ranks with a store agree on who they are"
    done = kinetoscope("recover", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert merged_trace(tmp_path).read_bytes() == finished
    (recovered,) = (tmp_path / "run" / "traces").glob("merged_trace-*.json")
    assert spans_by_rank(recovered) == {0: 3, 1: 3}
    assert str(recovered) in done.stdout


def test_a_merged_trace_made_by_hand_is_not_replaced_by_a_recovered_one(tmp_path):
    run_ranks(tmp_path, "no process group kill1")
    merged_trace(tmp_path).write_text(json.dumps({"traceEvents": [{"ph": "X", "pid": 7, "tid": 7, "ts": 1, "dur": 1}]}))
    by_hand = merged_trace(tmp_path).read_bytes()
    done = kinetoscope("recover", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert merged_trace(tmp_path).read_bytes() == by_hand
    (recovered,) = (tmp_path / "run" / "traces").glob("merged_trace-*.json")
    assert spans_by_rank(recovered) == {0: 3, 1: 3}


# -- where the files go --------------------------------------------------------------------------------------------


def test_files_stay_where_out_was_when_training_changes_the_folder(tmp_path, monkeypatch):
    import kinetoscope as face

    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with face.profile("run", torch=False, system=False) as profiler:
        monkeypatch.chdir("elsewhere")
        for _ in profiler.batches(range(7)):
            pass
    assert (tmp_path / "run" / "traces" / "merged_trace.json.gz").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_relative_live_folder_stays_where_it_was(tmp_path, monkeypatch):
    from kinetoscope import Profiler, ProfilerAction
    from kinetoscope.testing import MemoryTraceHandler

    monkeypatch.chdir(tmp_path)
    profiler = Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), spool_folder="run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with profiler:
        assert (tmp_path / "run" / "live").exists()
    assert not list((tmp_path / "elsewhere").iterdir())
