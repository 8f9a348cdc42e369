"""`kinetoscope status` and the page of `kinetoscope view` say what the ranks of a run do, whatever happens to them."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress

import pytest

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.pulse.layout import FOLDER, MAGIC
from kinetoscope.server.run_lists import RunLists
from support.fork_server import KINETOSCOPE_MODULES, run_command, start_forked
from support.polling import wait_for

MAX_WAIT_S = 120
ENOUGH_STEPS = 40

# Each step takes at least 2 ms, so that steps differ in time. It ends when there is a file `end` in the folder.
TRAIN = """
import os, sys, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder = sys.argv[1]
traces = JSONTraceHandler(folder + "/traces", overwrite=True)
with Profiler(lambda state: ProfilerAction.SKIP, traces) as profiler:
    progress = profiler.marker("progress")
    for batch in profiler.batches(iter(lambda: os.path.exists(folder + "/end"), True)):
        progress.counter({"loss": 0.25})
        time.sleep(0.002)
"""
# It waits at step 50 for a thread that lets it go on when there is a file `go` in the folder.
HANG = """
import os, sys, threading, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder, event = sys.argv[1], threading.Event()

def let_go_on():
    while not os.path.exists(folder + "/go"):
        time.sleep(0.01)
    event.set()

threading.Thread(target=let_go_on, daemon=True).start()
with Profiler(lambda state: ProfilerAction.SKIP, JSONTraceHandler(folder + "/traces")) as profiler:
    for batch in profiler.batches(iter(lambda: os.path.exists(folder + "/end"), True)):
        time.sleep(0.002)
        if profiler.state.timestamp.batch == 50:
            event.wait()
"""
FAIL = """
import contextlib, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
profiler = Profiler(lambda state: ProfilerAction.SKIP, JSONTraceHandler(sys.argv[1] + "/traces"))
with contextlib.ExitStack() as stack:
    {begin}
    for batch in profiler.batches(range(3)):
        pass
    {end}
"""
CHANGES = ("creat", "unlink", "rename", "mkdir", "rmdir", "link", "symlink", "truncate", "chmod", "chown", "kill")
CHANGES += ("mknod", "utime", "connect", "bind", "sendto")


@contextmanager
def training(folder, num_ranks=2, **environment):
    """Processes of a training job that runs until they are killed or requested to end."""
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        processes = []
        for rank in range(num_ranks):
            ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_ranks, "MASTER_PORT": 29511, **environment}
            environ = os.environ | {name: str(value) for name, value in ranks.items()}
            process = start_forked(KINETOSCOPE_MODULES, TRAIN, folder, environment=environ)
            stack.callback(ended, process)
            processes.append(process)
        yield processes


def ended(process):
    process.kill()
    return process.wait()


def status_json(folder):
    """Return the exit code and the JSON."""
    done = run_command("status", folder, "--json")
    assert not done.stderr
    return done.returncode, json.loads(done.stdout)


def states(folder):
    return {rank["rank"]: rank["state"] for rank in status_json(folder)[1]["ranks"]}


def has_trained(folder, num_ranks=2):
    ranks = status_json(folder)[1]["ranks"]
    return len(ranks) == num_ranks and all(rank["num_steps"] >= ENOUGH_STEPS for rank in ranks)


def status_text(folder):
    """Return the exit code, and what a person reads."""
    done = run_command("status", folder, environment=os.environ | {"COLUMNS": "200"})
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("end", "with_profiler", "state", "status"),
    [
        ("raise ValueError('no data')", True, "failed", 4),
        ("raise ValueError('no data')", False, "failed", 4),
        ("raise KeyboardInterrupt", True, "finished", 0),
        ("raise SystemExit(3)", True, "finished", 0),
        ("pass", False, "finished", 0),
    ],
)
def test_run_that_an_exception_ended_has_failed_and_not_one_that_was_asked_to_end(
    tmp_path, end, with_profiler, state, status
):
    program = FAIL.format(
        begin="profiler.__enter__()" if not with_profiler else "stack.enter_context(profiler)", end=end
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=False)
    assert b"Traceback" in ended.stderr or end in ("pass", "raise SystemExit(3)")
    code, about = status_json(tmp_path)
    assert (code, about["state"]) == (status, state)
    assert RunLists(RunFolder(tmp_path), "").all().runs[0].state == state
    if state == "failed":
        assert "Rank 0 failed with an exception after step 2." in status_text(tmp_path)[1]


def test_ranks_that_train_are_recording_until_they_have_finished(tmp_path):
    with training(tmp_path) as processes:
        wait_for(lambda: has_trained(tmp_path))
        code, about = status_json(tmp_path)
        assert (code, about["schema"], about["state"], about["world_size"]) == (0, 2, "recording", 2)
        assert {rank["rank"]: rank["pid"] for rank in about["ranks"]} == {
            rank: process.pid for rank, process in enumerate(processes)
        }
        for rank in about["ranks"]:
            assert (rank["step"], rank["device_bytes"]) == (rank["num_steps"] - 1, None)
            assert rank["step_ns"] >= 2_000_000
            assert rank["run_step_ns"] >= 2_000_000
            assert rank["phase"] in ("data_wait", "other")
        code, text = status_text(tmp_path)
        assert code == 0
        assert text.startswith("running: 2 ranks, step")
        (tmp_path / "end").touch()
        assert [process.wait().returncode for process in processes] == [0, 0]
        code, text = status_text(tmp_path)
        assert code == 0
        assert text.startswith("finished: 2 ranks, step")
        loss = {rank["loss"] for rank in status_json(tmp_path)[1]["ranks"]}
        assert loss == {0.25}


def test_suspended_rank_is_hung_until_it_continues(tmp_path):
    with training(tmp_path) as processes:
        wait_for(lambda: has_trained(tmp_path))
        os.kill(processes[1].pid, signal.SIGSTOP)
        wait_for(lambda: states(tmp_path)[1] == "hanging")
        code, text = status_text(tmp_path)
        assert code == 3
        assert text.startswith("hung: 2 ranks")
        assert re.search(r"^Rank 1 is suspended \(SIGSTOP\), in (data wait|other) for .*\.$", text, re.M)
        wait_for(lambda: [rank["behind"] > 0 for rank in status_json(tmp_path)[1]["ranks"]] == [True, False])
        os.kill(processes[1].pid, signal.SIGCONT)
        wait_for(lambda: states(tmp_path) == {0: "recording", 1: "recording"})
        assert status_json(tmp_path)[0] == 0


def test_hung_rank_is_shown_with_its_phase_until_it_continues(tmp_path):
    environment = os.environ | {"KINETOSCOPE_HANG_S": "0.5"}
    process = start_forked(KINETOSCOPE_MODULES, HANG, tmp_path, environment=environment)
    try:
        wait_for(
            lambda: [(rank["state"], rank["step"]) for rank in status_json(tmp_path)[1]["ranks"]] == [("hanging", 49)]
        )
        code, about = status_json(tmp_path)
        (rank,) = about["ranks"]
        assert (code, about["state"], rank["is_stopped"]) == (3, "hanging", False)
        assert (rank["hang"]["hangs"], rank["hang"]["holds_gil"]) == (True, False)
        assert "wait" in rank["hang"]["location"]
        assert "Rank 0 hangs in other for " in status_text(tmp_path)[1]
        assert rank["hang"]["location"] in status_text(tmp_path)[1]
        (tmp_path / "go").touch()
        wait_for(lambda: status_json(tmp_path)[1]["state"] == "recording")
        (tmp_path / "end").touch()
        assert process.wait().returncode == 0
        assert status_json(tmp_path)[1]["state"] == "finished"
    finally:
        ended(process)


def test_killed_rank_is_shown_with_its_last_step(tmp_path):
    with training(tmp_path) as processes:
        wait_for(lambda: has_trained(tmp_path))
        ended(processes[0])
        code, about = status_json(tmp_path)
        assert (code, about["state"]) == (4, "killed")
        assert [(rank["rank"], rank["state"]) for rank in about["ranks"]] == [(0, "killed"), (1, "recording")]
        assert about["ranks"][0]["step"] >= ENOUGH_STEPS - 1
        assert f"Rank 0 was killed after step {about['ranks'][0]['step']:,}, in " in status_text(tmp_path)[1]


@contextmanager
def training_apart(folder, *options):
    """Train in a namespace that unshare makes with these options, killed at the end."""
    apart = [shutil.which("unshare"), *options]
    if apart[0] is None or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make such a namespace")
    with subprocess.Popen([*apart, sys.executable, "-c", TRAIN, folder]) as process:
        try:
            wait_for(lambda: has_trained(folder, num_ranks=1))
            yield
        finally:
            process.kill()


def test_rank_in_another_container_of_this_machine_is_known_live_or_killed(tmp_path):
    """Its pid is another one there, and the same number may be anything here."""
    with training_apart(tmp_path, "--pid", "--fork", "--kill-child"):
        (rank,) = status_json(tmp_path)[1]["ranks"]
        assert (rank["state"], rank["pid"]) == ("recording", 1)
    wait_for(lambda: states(tmp_path) == {0: "killed"})


def test_rank_in_a_time_namespace_with_an_earlier_clock_is_not_reported_as_killed(tmp_path):
    """Its process started later, by its own clock, than its pulse states."""
    with training_apart(tmp_path, "--time", "--monotonic", "-10"):
        assert states(tmp_path) == {0: "recording"}


@pytest.mark.parametrize("environment", [{}, {"TORCHELASTIC_RESTART_COUNT": 1}])
def test_after_a_restart_the_newest_start_is_reported(environment, tmp_path):
    with training(tmp_path) as processes:
        wait_for(lambda: has_trained(tmp_path))
        for process in processes:
            ended(process)
    assert states(tmp_path) == {0: "killed", 1: "killed"}
    with training(tmp_path, **environment) as processes:
        pids = {process.pid for process in processes}
        wait_for(lambda: {rank["pid"] for rank in status_json(tmp_path)[1]["ranks"]} == pids)
        code, about = status_json(tmp_path)
        assert (code, about["attempt"]) == (0, environment.get("TORCHELASTIC_RESTART_COUNT", 0))
        assert states(tmp_path) == {0: "recording", 1: "recording"}


def test_the_page_says_what_the_terminal_says(tmp_path):
    lists = RunLists(RunFolder(tmp_path), "https://ui.perfetto.dev")
    with training(tmp_path) as processes:
        wait_for(lambda: has_trained(tmp_path))
        for process in processes:
            os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: set(states(tmp_path).values()) == {"hanging"})
        wait_for(lambda: lists.all().runs[0].state == "hanging")
        now, text = lists.one(".").files.live_status, status_text(tmp_path)[1]
        assert text.splitlines()[0] == now.headline
        moving = ("for", "behind")  # how much is a lag depends on how far apart both pulses were read
        columns = [(index, title) for index, title in enumerate(now.columns) if title not in moving]
        (titles,) = [line for line in text.splitlines() if line.split()[:2] == ["rank", "state"]]
        assert all(title in titles for _, title in columns)
        for row in now.rows:
            (line,) = [line for line in text.splitlines() if line.split()[:1] == row.cells[:1]]
            assert all(row.cells[index] in line for index, _ in columns)


def test_nothing_to_show_is_reported_as_such(tmp_path):
    code, text = status_text(tmp_path)
    assert code == 5
    assert text.startswith("nothing seen\n")
    assert "Pass the run folder" in text
    assert status_json(tmp_path) == (
        5,
        {
            "schema": 2,
            "state": "unknown",
            "attempt": None,
            "world_size": None,
            "missing_ranks": [],
            "collectives": [],
            "notes": [],
            "ranks": [],
        },
    )


# -- a terminal that is repainted


@contextmanager
def watched(folder):
    """The command on a terminal of its own; yields its process and what has been read of the terminal so far."""
    main, end = pty.openpty()
    command = [sys.executable, "-m", "kinetoscope", "status", str(folder), "--watch"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
    with subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, env=environment, start_new_session=True
    ) as process:
        os.close(end)
        try:
            yield process, Terminal(main)
        finally:
            process.kill()
            os.close(main)


class Terminal:
    def __init__(self, descriptor):
        self.descriptor, self.text = descriptor, ""

    def read(self):
        """Files that have arrived since are included."""
        with suppress(OSError):  # the other end is closed
            while select.select([self.descriptor], [], [], 0.02)[0]:
                piece = os.read(self.descriptor, 65536)
                if not piece:
                    break
                self.text += piece.decode()
        return self.text


@pytest.mark.parametrize("num_times", [1, 3])
def test_watching_shows_the_newest_until_ctrl_c(num_times, tmp_path):
    with training(tmp_path) as processes, watched(tmp_path) as (process, terminal):
        wait_for(lambda: len(set(re.findall(r"running: 2 ranks, steps? ([\d,]+)", terminal.read()))) > 1)
        os.kill(processes[0].pid, signal.SIGSTOP)
        wait_for(lambda: "Rank 0 is suspended (SIGSTOP)" in terminal.read())
        for _ in range(num_times):
            process.send_signal(signal.SIGINT)
        wait_for(lambda: [terminal.read(), process.poll()][1] is not None)
        may_end_with = (3,) if num_times == 1 else (3, -signal.SIGINT)  # the last Ctrl-C may find the work done
        assert process.returncode in may_end_with
        assert "Traceback" not in terminal.read()
        assert terminal.text.rfind("\x1b[?25h") > terminal.text.rfind("\x1b[?25l"), "the cursor is shown again"


def test_watching_for_a_program_prints_a_line_each_time(tmp_path):
    with training(tmp_path, num_ranks=1):
        command = [sys.executable, "-m", "kinetoscope", "status", tmp_path, "--watch", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [json.loads(process.stdout.readline()) for _ in range(3)]
            process.send_signal(signal.SIGTERM)
            process.wait(MAX_WAIT_S)
    assert {line["schema"] for line in lines} == {2}


# -- folders that a stranger has filled


def hostile(folder):
    """Things that are called as pulses are, and are none."""
    folder.mkdir(parents=True)
    (folder / "1-empty.pulse").touch()
    (folder / "2-torn.pulse").write_bytes(MAGIC)
    (folder / "3-noise.pulse").write_bytes(os.urandom(400_000))
    (folder / "4-nothing-said.pulse").write_bytes(MAGIC + b"\x01\0\0\0\0\x10\0\0" + bytes(400_000))
    (folder / "5-newer.pulse").write_bytes(MAGIC + b"\x09\0\0\0\0\x10\0\0" + bytes(400_000))
    (folder / "6-folder.pulse").mkdir()
    (folder / "7-link.pulse").symlink_to("/etc/passwd")
    os.mkfifo(folder / "8-pipe.pulse")
    (folder / "9-\N{SNOWMAN}\n\x1b[2J.pulse").write_bytes(b"x")
    (folder / "copy.pulses").write_bytes(b"KSPULSES" + b"\xff" * 100)
    (folder / "none.pulses").write_bytes(b"KSP")
    with open(folder / "0-huge.pulse", "wb") as file:
        file.write(MAGIC)
        file.truncate(1 << 40)


def test_folder_of_another_user_is_reported_without_a_traceback(tmp_path):
    hostile(tmp_path / FOLDER)
    code, text = status_text(tmp_path)
    assert code == 5
    assert text.startswith("nothing seen\n")
    assert "\x1b[2J" not in text
    assert "is no pulse of a run" in text
    assert len(status_json(tmp_path)[1]["notes"]) >= 6


def test_among_a_stranger_s_files_the_pulse_is_found(tmp_path):
    hostile(tmp_path / FOLDER)
    with training(tmp_path, num_ranks=1):
        wait_for(lambda: has_trained(tmp_path, num_ranks=1))
        assert states(tmp_path) == {0: "recording"}


def test_it_opens_reads_and_lists_only(tmp_path):
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True).returncode:
        pytest.skip("strace is not installed, or may not be used here")
    with training(tmp_path) as processes:
        wait_for(lambda: has_trained(tmp_path))
        ended(processes[0])
        log = tmp_path.parent / f"{tmp_path.name}.strace"
        command = [strace, "-f", "-o", log, sys.executable, "-B", "-m", "kinetoscope", "status", tmp_path]
        assert subprocess.run(command, capture_output=True, timeout=MAX_WAIT_S).returncode == 4
    calls = [line.split(None, 1)[1] for line in log.read_text().splitlines()]
    named = [call for call in calls if re.match(r"\w+\(", call)]
    changing = [
        call for call in named if call.startswith(CHANGES) or re.match(r"open\w*\(.*O_(WRONLY|RDWR|CREAT)", call)
    ]
    assert not changing
    assert {re.match(r"write\w*\((\d+)", call)[1] for call in named if call.startswith(("write", "pwrite"))} <= {
        "1",
        "2",
    }
