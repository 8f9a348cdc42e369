"""A hung training run reports where it hangs, also when killed then; one that only takes long does not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import kinetoscope
from kinetoscope.cli import main
from kinetoscope.pulse.layout import FOLDER
from kinetoscope.pulse.stalls import StalledPhase, StallFile, ThreadStack, read_stalls
from kinetoscope.status.health import RunState, read_run_status
from support.free_ports import free_port
from support.polling import wait_for
from support.programs.hangs import AT_WORK_S, NUM_USUAL

HUNG = Path(__file__).parents[1] / "support" / "programs" / "hangs.py"
LONG_S = 120
MIN_HANG_S, MIN_HEALTHY_HANG_S = 1.0, 4.0
"""Minimal duration of a phase. Without a hang, a machine that stalls for seconds must not trigger the watchdog."""

in_long_tests = pytest.mark.skipif("KINETOSCOPE_LONG_TESTS" not in os.environ, reason="in make test-long")


class Training:
    """A started training run, ended with the test."""

    def __init__(self, *words, least_s=MIN_HANG_S, **variables):
        environment = os.environ | {"KINETOSCOPE_HANG_S": str(least_s)} | variables
        self.folder = Path(words[-1])
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)], env=environment, stderr=subprocess.PIPE, text=True
        )

    def wait_for(self, is_so):
        """The first rank's status, once it is so."""
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            ranks = read_run_status(self.folder).ranks
            if ranks and is_so(ranks[0]):
                return ranks[0]
            assert self.process.poll() is None, self.process.stderr.read()
            time.sleep(0.1)
        raise AssertionError(read_run_status(self.folder))

    def wait_until_it_hangs(self):
        return self.wait_for(lambda rank: rank.state is RunState.HUNG and rank.hang is not None)


@pytest.fixture
def start(tmp_path):
    started = []

    def begin(kind, folder=tmp_path / "run", **options):
        started.append(Training(HUNG, kind, folder, **options))
        return started[-1]

    yield begin
    for training in started:
        with training.process as process:
            process.kill()


def line_of(text):
    """As a place names the line of the training that has this text."""
    (number,) = (number for number, line in enumerate(HUNG.read_text().splitlines(), 1) if text in line)
    return f"hangs.py({number})"


def stuck_phases(folder):
    return [phase for file in read_stalls(folder) for phase in file.phases]


def wait_for_stuck_phases(folder):
    """Their file comes after the word in the pulse."""
    return wait_for(lambda: stuck_phases(folder), every_s=0.05)


HANGS = [
    ("lock", "held.acquire()  #"),
    ("call_without_the_gil", "pause()"),
    ("poll", "never.wait"),
]


@pytest.mark.parametrize(("kind", "line"), HANGS)
def test_hung_training_reports_its_location(kind, line, start, tmp_path):
    rank = start(kind).wait_until_it_hangs()
    assert (rank.phase, rank.step) == ("other", 29)
    assert line_of(line) in rank.hang.location
    (phase,) = wait_for_stuck_phases(tmp_path / "run")
    assert phase.hangs
    assert phase.resumed_ns is None
    (stack,) = (each for each in phase.stacks if each.is_training)
    assert stack.frames[-1].endswith(": <module>")
    assert any("train" in frame for frame in stack.frames)
    (path,) = (tmp_path / "run" / FOLDER).glob("*.stuck")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_loop_on_another_thread_hangs_where_it_is(start):
    """The main thread waits for it, and does not train."""
    rank = start("lock_on_another_thread").wait_until_it_hangs()
    assert line_of("held.acquire()  #") in rank.hang.location


def test_a_debugger_that_waits_for_a_person_is_no_hang(start):
    rank = start("debugger").wait_for(lambda rank: rank.hang is not None)
    assert (rank.state, rank.hang.hangs) == (RunState.RECORDING, False)


def test_a_call_that_holds_the_gil_is_found_with_its_line(start):
    training = start("call_that_holds_the_gil")
    rank = training.wait_for(lambda rank: rank.hang is not None and rank.hang.location)
    assert rank.hang.holds_gil
    assert line_of("sleep(10_000)") in rank.hang.location


def test_hang_location_is_known_after_a_kill(start, tmp_path):
    training = start("lock")
    location = training.wait_until_it_hangs().hang.location
    training.process.kill()
    training.process.wait()
    (rank,) = read_run_status(tmp_path / "run").ranks
    assert rank.state is RunState.KILLED
    assert location
    assert rank.hang.location == location


def test_a_stopped_process_has_a_phase_and_no_line(start):
    training = start("stopped")
    rank = training.wait_for(lambda rank: rank.is_stopped)
    assert (rank.state, rank.phase, rank.hang) == (RunState.HUNG, "other", None)
    training.process.send_signal(signal.SIGCONT)
    training.process.wait(LONG_S)
    assert training.process.returncode == 0


def test_time_in_which_a_process_was_stopped_makes_no_hang(start, tmp_path):
    training = start("stopped_at_work", least_s=MIN_HEALTHY_HANG_S)
    training.wait_for(lambda rank: rank.is_stopped and rank.phase_ns > 2e9 * MIN_HEALTHY_HANG_S)
    training.process.send_signal(signal.SIGCONT)
    _, output = training.process.communicate(timeout=LONG_S)
    assert training.process.returncode == 0, output
    assert not stuck_phases(tmp_path / "run")
    stacks = (tmp_path / "run" / FOLDER).glob("*.stacks")
    assert not [*stacks], "reading them while it runs has ended the process"


def test_a_script_that_does_something_else_after_its_loop_does_not_hang(start, tmp_path, capsys):
    training = start("after_the_loop", least_s=MIN_HEALTHY_HANG_S)
    _, output = training.process.communicate(timeout=LONG_S)
    assert training.process.returncode == 0, output
    assert "since its loop ended: other has taken" in output
    (phase,) = stuck_phases(tmp_path / "run")
    assert not phase.hangs
    main(["summary", str(tmp_path / "run")])
    assert "hung" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("kind", ["busy", "computing", "slow_steps"])
def test_long_phase_is_no_hang(kind, start, tmp_path):
    training = start(kind, least_s=MIN_HEALTHY_HANG_S)
    _, output = training.process.communicate(timeout=LONG_S)
    assert training.process.returncode == 0, output
    assert not stuck_phases(tmp_path / "run")
    assert "hangs" not in output


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no threads")
@pytest.mark.parametrize(
    ("kind", "num_greedy"),
    [
        pytest.param("busy", 1, marks=in_long_tests),
        pytest.param("busy", 8, marks=in_long_tests),
        pytest.param("computing", 1, marks=in_long_tests),
        ("computing", 8),
    ],
)
def test_descheduled_training_is_not_hung(kind, num_greedy, start, tmp_path):
    """Beside eight others it has none for two seconds."""
    training = start(kind)
    training.wait_for(lambda rank: rank.num_steps == NUM_USUAL)
    greedy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_greedy)]
    for pid in (training.process.pid, *(each.pid for each in greedy)):  # of the training, its main thread
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})
    os.setpriority(os.PRIO_PROCESS, training.process.pid, 19)
    time.sleep(AT_WORK_S)
    for each in greedy:
        each.kill()
        each.wait()
    _, output = training.process.communicate(timeout=LONG_S)
    assert training.process.returncode == 0, output
    assert not stuck_phases(tmp_path / "run")
    assert "hangs" not in output


def test_long_evaluation_is_reported_as_long_and_continues(start, tmp_path):
    training = start("evaluation", least_s=MIN_HEALTHY_HANG_S)
    _, output = training.process.communicate(timeout=LONG_S)
    assert "Training continues: evaluation took" in output
    (phase,) = stuck_phases(tmp_path / "run")
    assert (phase.phase, phase.hangs) == ("evaluation", False)
    assert phase.resumed_ns > phase.found_ns


def test_on_a_full_disk_the_line_is_in_the_pulse(start, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    try:
        training = start("lock", disk / "run")
        training.wait_for(lambda rank: rank.num_steps > 5)
        with pytest.raises(OSError, match="No space left"), (disk / "rest").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        rank = training.wait_until_it_hangs()
        assert line_of("held.acquire()  #") in rank.hang.location
        assert not list((disk / "run" / FOLDER).glob("*.stuck"))
        training.process.send_signal(signal.SIGINT)
        _, output = training.process.communicate(timeout=LONG_S)
        assert "are in no file: No space left on device" in output
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_timer_of_the_users_own_is_left_alone(tmp_path):
    """Python has one timer for stacks; who uses it keeps it."""
    program = tmp_path / "own.py"
    program.write_text(
        "import faulthandler, sys, time, kinetoscope\n"
        f"file = open({str(tmp_path / 'own.txt')!r}, 'w')\n"
        "with kinetoscope.profile(sys.argv[1], torch=False, system=False, quiet=True, hangs=True) as profiler:\n"
        "    faulthandler.dump_traceback_later(3, file=file)\n"
        "    for batch in profiler.batches(range(60)):\n"
        "        time.sleep(0.1)\n"
    )
    training = Training(program, tmp_path / "run")
    training.process.communicate(timeout=LONG_S)
    assert "own.py" in (tmp_path / "own.txt").read_text()
    assert not list((tmp_path / "run" / FOLDER).glob("*.stacks"))


# -- torch --

RANKS = """
import os, sys, threading, time, torch, torch.distributed as dist, kinetoscope
rank, folder = int(os.environ["RANK"]), sys.argv[1]
dist.init_process_group("gloo")
with kinetoscope.profile(folder, torch=False, system=False, quiet=True) as profiler:
    for batch in profiler.batches(range(31)):
        time.sleep(0.005)
        if batch == 30 and rank == 1:
            threading.Event().wait()  # it never comes
        dist.all_reduce(torch.ones(4))
"""


def test_rank_missing_in_a_collective_is_named(tmp_path):
    pytest.importorskip("torch")
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TORCH_FR_BUFFER_SIZE": "200"}
    shared |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    run = tmp_path / "run"
    ranks = [Training(program, run, **shared, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]
    try:
        (found,) = wait_for(lambda: read_run_status(run).collectives, lambda: read_run_status(run), every_s=0.1)
        assert (found.waiting, found.missing, found.collective) == ([0], [1], "gloo:all_reduce")
        locations = {rank.rank: rank.hang.location for rank in read_run_status(run).ranks}
        lines = RANKS.splitlines()
        for rank, text in ((0, "all_reduce"), (1, "Event().wait")):
            (number,) = (number for number, line in enumerate(lines, 1) if text in line)
            assert f"ranks.py({number})" in locations[rank]
    finally:
        for rank in ranks:
            rank.process.kill()
            rank.process.communicate()


WORKER = """
import os, signal, sys, time, torch, kinetoscope

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index == 40:
            os.kill(os.getpid(), signal.SIGSTOP)  # it never answers
        return index

with kinetoscope.profile(sys.argv[1], torch=False, system=False, quiet=True) as profiler:
    loader = torch.utils.data.DataLoader(Rows(), num_workers=1, multiprocessing_context="fork")
    for batch in profiler.batches(loader):
        time.sleep(0.002)
"""


def test_a_worker_that_does_not_answer_is_a_hang_in_waiting_for_data(tmp_path):
    pytest.importorskip("torch")
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    training = Training(program, tmp_path / "run")
    try:
        rank = training.wait_until_it_hangs()
        assert rank.phase == "data_wait"
        assert "worker.py(14)" in rank.hang.location
    finally:
        os.system(f"pkill -KILL -P {training.process.pid}")
        training.process.kill()
        training.process.communicate()


def test_a_hang_is_a_finding_of_the_run_also_where_nothing_was_recorded(start, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    training = start("lock")
    training.wait_until_it_hangs()
    wait_for_stuck_phases(tmp_path / "run")
    training.process.kill()
    training.process.wait()
    main(["summary", str(tmp_path / "run")])
    output = "".join("".join(capsys.readouterr()).split())  # lines may be broken anywhere
    assert "Hung:rank0stuckafterstep29forover" in output
    assert f"at{line_of('held.acquire()  #').replace('(', ':').replace(')', '')}" in output


def test_a_hang_that_was_over_before_a_kill_went_on(start, tmp_path, capsys):
    training = start("lock_that_is_freed")
    training.wait_until_it_hangs()
    wait_for_stuck_phases(tmp_path / "run")
    (tmp_path / "run" / "go_on").touch()
    assert training.process.wait(LONG_S) == -signal.SIGKILL
    main(["summary", str(tmp_path / "run")])
    assert "Hung,thencontinued:" in "".join("".join(capsys.readouterr()).split())


def test_the_hang_of_a_run_with_traces_comes_before_its_other_findings(tmp_path):
    folder = tmp_path / "run"
    schedule = kinetoscope.cyclic_schedule(skip_first=2, warmup=1, active=10, per="run")
    with kinetoscope.profile(folder, schedule=schedule, torch=False, system=False, quiet=True) as profiler:
        for _ in profiler.batches(range(20)):
            with profiler.marker("forward"):
                time.sleep(0.002)
        run = profiler.run
        second = 10**9
        stack = ThreadStack("MainThread", True, ["train.py(7): loss"])
        phase = StalledPhase("backward", True, 12, 0, 40 * second, 30 * second, "train.py(7): loss", [stack], [])
        found = StallFile(run.ranks, run.attempt, [phase, msgspec.structs.replace(phase, resumed_ns=50 * second)])
        profiler.lifecycle.services.pulse.write_sibling(".stuck", found.encoded())
    first, *_ = kinetoscope.analyze(folder, cache=False).findings
    assert (first.kind, first.confidence, first.where.ranks) == ("hang", "high", (0,))
    assert first.title == ("Hung: rank 0 stuck in backward for over 40.0 s at train.py:7 (2 hangs)")
    assert first.saving_ns_per_step is None


SLOW_SAVE = """
import sys, time, kinetoscope

class Slow(kinetoscope.TraceHandler):
    def process_cycle(self, cycle):
        time.sleep(6)

handlers = [kinetoscope.JSONTraceHandler(), Slow()]
always = lambda state: kinetoscope.ProfilerAction.ACTIVE
options = {"torch": False, "system": False, "hangs": True}
with kinetoscope.profile(sys.argv[1], schedule=always, handlers=handlers, **options) as profiler:
    for _ in range(60):
        time.sleep(0.005)
        profiler.step()
"""


def test_a_save_that_takes_long_is_never_a_hang(tmp_path):
    environment = os.environ | {"KINETOSCOPE_HANG_S": str(MIN_HANG_S)}
    done = subprocess.run(
        [sys.executable, "-c", SLOW_SAVE, str(tmp_path / "run")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "hangs" not in done.stderr.replace(str(tmp_path), "")
    assert stuck_phases(tmp_path / "run") == []
