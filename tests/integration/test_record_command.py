"""`kinetoscope record`: the same steps of all ranks of a running job, which continues undisturbed."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.cli import main
from kinetoscope.formats.record_request import RecordRequest, request_sequence
from kinetoscope.pulse.layout import RequestState
from kinetoscope.pulse.snapshot import read_run_snapshot
from support.fork_server import KINETOSCOPE_MODULES, RUN_COMMAND, start_forked
from support.polling import wait_for
from support.trace_processor.trace_processor import load

LONG_S = 240
TRAINING = """
import os, sys, time, kinetoscope
folder, stop = sys.argv[1:]
never = kinetoscope.cyclic_schedule(skip_first=10**9, per="run")
total = 0
with kinetoscope.profile(folder, schedule=never, torch=False, system=False, quiet=True) as profiler:
    for batch in profiler.batches(range(10**9)):
        with profiler.marker("train"):
            time.sleep(0.01)
        total += batch
        if os.path.exists(stop):
            break
print("trained", total == batch * (batch + 1) // 2)
sys.exit(3)
"""


class Job:
    """Ranks of one run that train until they are requested to stop."""

    def __init__(self, folder, num_ranks):
        self.folder, self.stop = folder / "run", folder / "stop"
        program = folder / "train.py"
        program.write_text(TRAINING)
        self.ranks = []
        for rank in range(num_ranks):
            ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": num_ranks}
            environment = os.environ | {name: str(value) for name, value in ranks.items()}
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
            words = [sys.executable, program, self.folder, self.stop]
            self.ranks.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))

    def requests(self):
        return {snapshot.header.process.ranks.rank: snapshot.header.request for snapshot in self.snapshots()}

    def snapshots(self):
        return read_run_snapshot(self.folder).last

    def wait_for(self, is_so):
        wait_for(is_so, self.snapshots, timeout_s=LONG_S, every_s=0.1)

    def end(self):
        self.stop.touch()
        return [(rank.communicate(timeout=LONG_S)[0], rank.returncode) for rank in self.ranks]


@pytest.fixture
def start(tmp_path):
    jobs = []

    def begin(num_ranks):
        job = Job(tmp_path, num_ranks)
        jobs.append(job)
        job.wait_for(
            lambda: len(job.snapshots()) == num_ranks and all((each.step or 0) > 20 for each in job.snapshots())
        )
        return job

    yield begin
    for job in jobs:
        for rank in job.ranks:
            rank.kill()
            rank.wait()
            rank.stdout.close()


def batches_of(path):
    spans = kinetoscope.load(path).spans.collect()
    return sorted(spans.filter(spans["name"] == "event/batch")["batch"].to_list())


def test_two_ranks_record_the_same_steps_and_go_on(start, capsys):
    job = start(2)
    code = main(["record", str(job.folder), "--num-steps", "4", "--json", "--report"])
    found = json.loads(capsys.readouterr().out)
    outcomes = [rank["outcome"] for rank in found["ranks"]]
    if code:  # on a machine that stands still for long, a rank may be late: then it is named
        assert "late" in outcomes
        pytest.skip("this machine is too slow to request two ranks in time")
    assert outcomes == ["saved", "saved"]
    expected = list(range(found["first_step"], found["first_step"] + 4))
    for rank in found["ranks"]:
        assert batches_of(rank["trace"])[-4:] == expected
        with load(Path(rank["trace"])) as trace:
            assert not trace.errors()
    assert "<html" in Path(found["report"]).read_text()
    assert job.end() == [("trained True\n", 3)] * 2


def test_one_rank_of_two_and_its_summary(start, capsys):
    job = start(2)
    assert main(["record", str(job.folder), "--ranks", "1", "--num-steps", "3"]) == 0
    printed = capsys.readouterr().out
    assert "3 steps" in printed
    assert "Recorded: " in printed
    states = {rank: request.state for rank, request in job.requests().items()}
    assert states == {0: RequestState.NONE, 1: RequestState.SAVED}
    assert [path.name[-13:] for path in (job.folder / "traces").glob("ep*.json.gz")] == ["rank1.json.gz"]


AT_ONCE = """
import os, sys, time
go = sys.argv.pop(1)
open(f"{go}-{os.getpid()}", "w").close()
while not os.path.exists(go):
    time.sleep(0.001)
"""
AT_ONCE += RUN_COMMAND


def test_one_of_simultaneous_requests_is_answered_and_the_others_refused(start, tmp_path):
    """Processes that import our modules first may be seconds apart, as long as a recording takes."""

    job = start(1)
    modules, arguments = (*KINETOSCOPE_MODULES, "kinetoscope.cli.record"), ("record", job.folder, "--num-steps", "3")
    commands = [start_forked(modules, AT_ONCE, tmp_path / "at_once", *arguments) for _ in range(4)]
    wait_for(lambda: len(list(tmp_path.glob("at_once-*"))) == len(commands))
    (tmp_path / "at_once").touch()
    printed = [command.wait(LONG_S) for command in commands]
    assert sum("Recorded: " in done.stdout for done in printed) == 1, printed
    refused = [done.stderr for done in printed if "Recorded: " not in done.stdout]
    assert all("Another request" in errors or "in progress" in errors or "not over" in errors for errors in refused)
    assert len(list((job.folder / "traces").glob("ep*.json.gz"))) == 1


def test_steps_that_the_end_of_the_job_cuts_off_are_counted_and_the_others_are_shown(start, capsys):
    job = start(1)

    def end_while_it_records():
        job.wait_for(lambda: job.requests()[0].state is RequestState.RECORDS)
        recorded = job.snapshots()[0].step
        job.wait_for(lambda: (job.snapshots()[0].step or 0) > recorded + 3)
        job.stop.touch()

    ending = threading.Thread(target=end_while_it_records)
    ending.start()
    code = main(["record", str(job.folder), "--num-steps", "100"])
    ending.join()
    printed = capsys.readouterr()
    if "of 100 steps recorded" not in printed.err and code == 0:
        pytest.skip("this machine was suspended while the job recorded 100 steps")
    assert code == 1
    assert re.fullmatch(r"error: \d+ of 100 steps recorded, the job ended\.\n", printed.err), printed.err
    assert "Recorded: " in printed.out


def test_forbidden_request_changes_nothing_and_the_next_is_answered(start, tmp_path, capsys):
    job = start(1)
    path = job.folder / "pulse" / "record.request"
    wrong = RecordRequest(request_sequence(str(path)) + 1, 10, 0, 0).encoded()
    path.write_bytes(wrong[:-1] + b"?")  # its checksum is another one
    (tmp_path / "other").write_bytes(RecordRequest(9, 10, 0, 0).encoded())
    path.rename(path.with_name("kept"))
    path.symlink_to(tmp_path / "other")
    before = job.snapshots()[0].step
    job.wait_for(lambda: job.snapshots()[0].step > before + 200)  # for seconds, it has looked each second
    assert job.requests()[0].sequence == 0
    path.unlink()
    path.with_name("kept").rename(path)
    assert main(["record", str(job.folder), "--num-steps", "2"]) == 0
    assert [path.suffixes for path in (job.folder / "traces").glob("ep*.json.gz")] == [[".json", ".gz"]]


def test_a_request_that_is_seen_half_written_is_taken_once_it_is_whole(start):
    job = start(1)
    path = job.folder / "pulse" / "record.request"
    (rank,) = job.snapshots()
    request = RecordRequest(request_sequence(str(path)) + 1, 2, rank.step + 10_000, 0)
    with path.open("r+b") as file:
        file.write(request.encoded()[:100])  # the sequence is there, and the checksum is not
    job.wait_for(lambda: job.snapshots()[0].step > rank.step + 150)  # for over a second, with at least one refresh
    assert job.requests()[0].sequence == 0
    with path.open("r+b") as file:
        file.write(request.encoded())
    job.wait_for(lambda: job.requests()[0].sequence == request.sequence)
    assert job.requests()[0].state is RequestState.WAITS


def test_a_run_that_has_ended_cannot_be_asked_and_one_that_is_none_neither(start, tmp_path, capsys):
    job = start(1)
    job.end()
    assert main(["record", str(job.folder)]) == 1
    assert "has ended" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["record", str(tmp_path / "empty")]) == 1
    assert "No pulse of a run in" in capsys.readouterr().err
    assert main(["record", str(job.folder), "--num-steps", "101"]) == 2
    assert "at most 100" in capsys.readouterr().err


def test_training_that_ends_before_the_window_reports_it(start, capsys):
    """It is stopped once it has taken the request, some seconds before the first step."""
    job = start(1)
    command = subprocess.Popen(
        [sys.executable, "-m", "kinetoscope", "record", str(job.folder)], stderr=subprocess.PIPE, text=True
    )
    job.wait_for(lambda: job.requests()[0].sequence == 1)
    job.end()
    _, printed = command.communicate(timeout=LONG_S)
    assert command.returncode == (0 if not printed else 1)
    assert "it ended before them" in printed or job.requests()[0].state is RequestState.SAVED
