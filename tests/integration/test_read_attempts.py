"""A run that torchrun or Slurm has restarted: readers take its last attempt, and say how to read the others."""

import json
import logging
import os
import signal

import polars as pl
import pytest

import kinetoscope
from kinetoscope.errors import TraceFileError
from support.fork_server import run_command, run_program, run_with_torch, start_with_torch
from support.free_ports import free_port
from support.page_data import page_text

TRAIN = """
import os, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder, num_batches = sys.argv[1], int(sys.argv[2])
def schedule(state):
    return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch == 4 else ProfilerAction.ACTIVE
with Profiler(schedule, JSONTraceHandler(folder + "/traces"), strict=True) as profiler:
    for batch in profiler.batches(range(num_batches)):
        with profiler.marker("work"):
            pass
    if num_batches == 8:
        assert profiler.lifecycle.drain(60)
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def restarted(tmp_path):
    """The folder of a run: attempt 0 saved five batches and was killed after eight; attempt 1 finished twenty."""
    for restart, num_batches, status in ((0, 8, -signal.SIGKILL), (1, 20, 0)):
        environment = os.environ | {"TORCHELASTIC_RESTART_COUNT": str(restart), "TORCHELASTIC_RUN_ID": "job"}
        done = run_program(TRAIN, tmp_path / "run", num_batches, environment=environment)
        assert done.returncode == status, done.stderr
    return tmp_path / "run"


def test_one_rank_per_host_reports_unsaved_data_of_an_earlier_attempt(tmp_path):
    counts = []
    for restart, rank, num_batches in ((0, 0, 8), (1, 0, 5), (1, 1, 5)):
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
        names |= {"TORCHELASTIC_RESTART_COUNT": restart, "TORCHELASTIC_RUN_ID": "job"}
        environment = os.environ | {name: str(value) for name, value in names.items()}
        done = run_program(TRAIN, tmp_path / "run", num_batches, environment=environment)
        counts.append(done.stderr.count("Rank 0 of an earlier attempt was killed and left what it had not saved"))
    assert counts == [0, 1, 0]


def num_steps(run, *options):
    done = run_command("summary", "--json", "--no-cache", run, *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["run"]
    return found["num_steps"], " ".join(found["notes"])


def test_summary_reads_the_last_attempt_and_says_how_to_read_the_others(restarted):
    steps, notes = num_steps(restarted)
    assert steps == 20
    assert "2 attempts" in notes
    assert "--attempt" in notes
    steps, notes = num_steps(restarted, "--attempt", "0")
    assert steps == 8
    assert "attempt 0" in notes


def test_summary_of_the_folder_of_traces_reads_the_last_attempt_too(restarted):
    assert num_steps(restarted / "traces")[0] == 20
    assert num_steps(restarted / "traces", "--attempt", "0")[0] == 5


def test_an_attempt_that_is_not_there_is_named_with_those_that_are(restarted):
    done = run_command("summary", restarted, "--attempt", "7")
    assert done.returncode == 1
    assert "no attempt 7" in done.stderr
    assert "0, 1" in done.stderr
    with pytest.raises(TraceFileError, match="no attempt 7"):
        kinetoscope.load(restarted, attempt=7)


def test_info_reads_the_last_attempt_and_says_how_to_read_the_others(restarted):
    done = run_command("info", "--no-cache", "--json", restarted)
    assert done.returncode == 0, done.stderr
    assert "attempt1" in json.loads(done.stdout.splitlines()[0])["name"]
    assert "--attempt" in done.stderr


def test_load_reads_the_last_attempt_and_warns_that_there_are_others(restarted, caplog):
    def batches(**options):
        found = kinetoscope.load(restarted, cache=False, **options)
        return sum(len(trace.spans.filter(pl.col("name") == "event/batch").collect()) for trace in found)

    with caplog.at_level(logging.WARNING, logger="kinetoscope"):
        assert batches() == 20
    assert "2 attempts" in caplog.text
    assert batches(attempt=0) == 8
    assert kinetoscope.analyze(restarted, attempt=1, cache=False).run["num_steps"] == 20


def test_the_report_is_on_the_last_attempt_and_says_so(restarted):
    done = run_command("report", "--no-cache", restarted, "-o", restarted / "last.html")
    assert done.returncode == 0, done.stderr
    assert "2 attempts" in json.dumps(page_text((restarted / "last.html").read_text()))


def test_recovering_an_attempt_says_that_a_later_one_is_there(restarted):
    done = run_command("recover", restarted)
    assert done.returncode == 0, done.stderr
    assert "attempt 0 of the run. The last one is 1" in done.stdout
    assert num_steps(restarted)[0] == 20
    assert num_steps(restarted, "--attempt", "0")[0] == 8


UNDER_BOTH = """
import os, pathlib, sys, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
requeues, restarts = int(os.environ.get("SLURM_RESTART_COUNT", 0)), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler(sys.argv[1] + "/traces"), strict=True) as profiler:
    for batch in profiler.batches(range(4 + 2 * requeues + restarts)):
        with profiler.marker("work"):
            pass
ended = [pathlib.Path(sys.argv[1], f"ended-{rank}-{requeues}-{restarts}") for rank in "01"]
ended[int(os.environ["RANK"])].touch()
while not all(map(pathlib.Path.exists, ended)):  # at the first failure torchrun kills the other rank
    time.sleep(0.01)
sys.exit(restarts == 0)  # torchrun starts it again
"""


def test_a_job_of_torchruns_that_slurm_requeues_has_an_attempt_for_each_start(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(UNDER_BOTH)
    run = tmp_path / "run"
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.1"]
    for count in (None, "1"):
        slurm = {"SLURM_JOB_ID": "17", "OMP_NUM_THREADS": "1"} | ({"SLURM_RESTART_COUNT": count} if count else {})
        program = "from torch.distributed.run import main\nmain()"
        command = [*options, tmp_path / "train.py", run]
        done = run_with_torch(program, *command, environment=os.environ | slurm)
        assert done.returncode == 0, done.stderr

    def num_batches(**options):
        found = kinetoscope.load(run, cache=False, **options)
        return [len(trace.spans.filter(pl.col("name") == "event/batch").collect()) for trace in found]

    attempts = (0, 1, 10_000, 10_001)
    assert [num_batches(attempt=number) for number in attempts] == [[4, 4], [5, 5], [6, 6], [7, 7]]
    assert num_batches() == [7, 7]


# Each round but the last is ended by the rank of one node, which fails while the other one trains.
ON_TWO_NODES = """
import os, pathlib, sys, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
run, rank, ports = sys.argv[1], int(os.environ["RANK"]), os.environ["MASTER_PORT"]
num_failed = len(list(pathlib.Path(run).parent.glob("failed-*")))
def wait_for(name):
    while not pathlib.Path(f"{run}-{name}").exists():
        time.sleep(0.01)
with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler(run + "/traces"), strict=True) as profiler:
    for batch in profiler.batches(range(4 + num_failed)):
        with profiler.marker("work"):
            pass
        if batch == 2 and num_failed < 2:
            pathlib.Path(f"{run}-{num_failed}-{rank}").touch()
            wait_for(f"{num_failed}-{1 - rank}")
            if rank == 1 - num_failed:
                pathlib.Path(run).with_name(f"failed-{num_failed}").touch()
                os._exit(3)
            time.sleep(600)  # its torchrun stops it
"""


def test_torchrun_nodes_with_unequal_restart_counts_get_an_attempt_per_start(tmp_path):
    """torchrun counts only the failures of a node's own ranks: here 0 and 0, then 0 and 1, then 1 and 1."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(ON_TWO_NODES)
    run = tmp_path / "run"
    options = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "job"]
    options += ["--rdzv-endpoint", f"localhost:{free_port()}", "--max-restarts", "1", "--monitor-interval", "0.1"]
    program = "from torch.distributed.run import main\nmain()"
    command = [*options, tmp_path / "train.py", run]
    nodes = [start_with_torch(program, *command, environment=os.environ | {"OMP_NUM_THREADS": "1"}) for _ in range(2)]
    ended = [node.wait() for node in nodes]
    assert [node.returncode for node in ended] == [0, 0], ended

    def num_batches(**options):
        found = kinetoscope.load(run, cache=False, **options)
        return [len(trace.spans.filter(pl.col("name") == "event/batch").collect()) for trace in found]

    assert num_batches() == num_batches(attempt=2) == [6, 6]
    assert run_command("recover", run).returncode == 0
    assert [num_batches(attempt=number) for number in (0, 1)] == [[3, 3], [3, 3]]  # the third is cut
