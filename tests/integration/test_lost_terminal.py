"""The terminal of a run goes away, as when a connection by SSH is lost: what it recorded is saved. Real terminals."""

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from support.fork_server import run_command
from support.trace_files import trace_json

PRELUDE = """
import errno, logging, os, signal, sys, time
import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
always = lambda state: ProfilerAction.ACTIVE
folder, ready = sys.argv[1], sys.argv[2]

def train(profiler, body=lambda batch: None, num_batches=10**6):
    with profiler:
        for batch in profiler.batches(range(num_batches)):
            with profiler.marker("train"):
                time.sleep(0.01)
            body(batch)
            if batch == 5:
                open(ready, "w").close()
"""


class Terminal:
    """A program that has a terminal of its own, as a login by SSH has."""

    def __init__(self, tmp_path, program, *, before=()):
        self.folder, self.ready = tmp_path / "traces", tmp_path / "ready"
        script = tmp_path / "program.py"
        script.write_text(PRELUDE + textwrap.dedent(program))
        self.master, other = pty.openpty()
        self.process = subprocess.Popen(
            [*before, sys.executable, script, self.folder, self.ready],
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=tmp_path,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(other)

    def wait_until_it_trains(self):
        deadline = time.monotonic() + 60
        while not self.ready.exists():
            assert self.process.poll() is None, os.read(self.master, 10**5).decode()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def go_away(self):
        """Close the terminal; the system then sends SIGHUP, and each write ends with EIO."""
        os.close(self.master)

    def spans(self):
        (path,) = self.folder.glob("ep*.json*")
        return [event["name"] for event in trace_json(path)["traceEvents"] if event["ph"] == "X"]


def take_terminal():
    """Make the terminal the one that controls this session."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_run_with_a_closed_terminal_saves_and_then_exits_as_without_us(tmp_path):
    terminal = Terminal(tmp_path, "train(Profiler(always, JSONTraceHandler(folder)))")
    terminal.wait_until_it_trains()
    terminal.go_away()
    assert terminal.process.wait(60) == -signal.SIGHUP
    assert terminal.spans().count("train") >= 5
    assert (terminal.folder / "merged_trace.json").exists()


def test_run_that_prints_to_a_closed_terminal_is_saved(tmp_path):
    """Handlers of the user's that let the error through must not stop the save."""
    program = """
    class ToTerminal(logging.Handler):
        def emit(self, record):
            os.write(2, self.format(record).encode())

    logging.basicConfig(level=logging.DEBUG, handlers=[ToTerminal()])
    system = kinetoscope.SystemProfiler(stats_thread_interval_seconds=0.05)
    train(Profiler(always, JSONTraceHandler(folder), sources=[system]), lambda batch: print("batch", batch, flush=True))
    """
    terminal = Terminal(tmp_path, program)
    terminal.wait_until_it_trains()
    terminal.go_away()
    assert terminal.process.wait(60) == -signal.SIGHUP
    assert terminal.spans().count("train") >= 5


def test_a_run_that_ends_without_its_terminal_saves_and_ends_well(tmp_path):
    """SIGHUP is ignored, as after disown: only the terminal is missing."""
    program = """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    class ToTerminal(logging.Handler):
        def emit(self, record):
            os.write(2, self.format(record).encode())

    logging.basicConfig(level=logging.DEBUG, handlers=[ToTerminal()])
    def wait_until_terminal_is_gone(batch):
        while batch == 6:
            try:
                os.write(1, b".")
                time.sleep(0.02)
            except OSError as error:
                assert error.errno == errno.EIO
                break

    train(kinetoscope.profile(os.path.dirname(folder), torch=False, schedule=always), wait_until_terminal_is_gone, 12)
    open(ready + ".done", "w").write(str(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN))
    os._exit(0)
    """
    terminal = Terminal(tmp_path, program)
    terminal.wait_until_it_trains()
    terminal.go_away()
    assert terminal.process.wait(60) == 0
    assert terminal.spans().count("train") == 12
    assert (tmp_path / "ready.done").read_text() == "True"


def test_run_under_nohup_continues_without_its_terminal(tmp_path):
    terminal = Terminal(tmp_path, "train(Profiler(always, JSONTraceHandler(folder)), num_batches=60)", before=["nohup"])
    terminal.wait_until_it_trains()
    terminal.go_away()
    assert terminal.process.wait(60) == 0
    assert terminal.spans().count("train") == 60


def test_a_users_own_handler_of_sighup_is_called_as_before(tmp_path):
    program = """
    called = []
    def mine(number, frame):
        open(ready + ".called", "w").close()
        called.append(number)

    def body(batch):
        if called:
            raise SystemExit(7)

    signal.signal(signal.SIGHUP, mine)
    train(Profiler(always, JSONTraceHandler(folder)), body)
    """
    terminal = Terminal(tmp_path, program)
    terminal.wait_until_it_trains()
    terminal.go_away()
    assert terminal.process.wait(60) == 7
    assert (tmp_path / "ready.called").exists()
    assert terminal.spans().count("train") >= 5


def test_after_a_run_sighup_has_its_handler_from_before(tmp_path):
    program = """
    train(Profiler(always, JSONTraceHandler(folder)), num_batches=8)
    print(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGTERM).name)
    """
    terminal = Terminal(tmp_path, program)
    terminal.process.wait(60)
    assert b"SIG_DFL SIG_DFL" in os.read(terminal.master, 10**5)
    terminal.go_away()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_with_loader_workers_and_torch_too_the_window_is_saved(tmp_path, num_workers):
    pytest.importorskip("torch")
    method = "fork" if num_workers else None
    program = f"""
    import torch
    from torch.utils.data import DataLoader

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 10**6
        def __getitem__(self, index):
            return torch.ones(4)

    loader = DataLoader(Data(), batch_size=2, num_workers={num_workers}, multiprocessing_context={method!r})
    profiler = kinetoscope.profile(os.path.dirname(folder), schedule=always)
    with profiler:
        for batch, _ in enumerate(profiler.batches(loader)):
            with profiler.marker("train"):
                torch.ones(3) + 1
            time.sleep(0.01)
            if batch == 5:
                open(ready, "w").close()
    """
    terminal = Terminal(tmp_path, program)
    terminal.wait_until_it_trains()
    terminal.go_away()
    terminal.process.wait(90)
    spans = terminal.spans()
    assert spans.count("train") >= 5
    assert "aten::add" in spans


def test_torchs_profiler_hands_its_window_over(tmp_path):
    pytest.importorskip("torch")
    program = """
    import torch
    from kinetoscope.torch import profile, schedule
    os.mkdir(folder)
    export = lambda p: p.export_chrome_trace(folder + "/ep.json")
    with profile(schedule=schedule(wait=0, warmup=1, active=10**6), on_trace_ready=export) as p:
        for step in range(10**6):
            torch.ones(3) + 1
            time.sleep(0.01)
            p.step()
            if step == 5:
                open(ready, "w").close()
    """
    terminal = Terminal(tmp_path, program)
    terminal.wait_until_it_trains()
    terminal.go_away()
    assert terminal.process.wait(90) == -signal.SIGHUP
    assert terminal.spans().count("aten::add") >= 4


def test_nothing_is_left_to_recover(tmp_path):
    terminal = Terminal(tmp_path, "train(kinetoscope.profile(os.path.dirname(folder), torch=False, schedule=always))")
    terminal.wait_until_it_trains()
    terminal.go_away()
    assert terminal.process.wait(60) == -signal.SIGHUP
    assert "leaves nothing to recover" in run_command("recover", tmp_path).stderr
    assert list((tmp_path / "live").glob("*")) == []


def test_command_finishes_its_file_after_its_terminal_closes(tmp_path):
    """A merge continues without its terminal, as after disown: its progress bar must not stop it."""
    events = [{"ph": "X", "name": "a", "pid": 0, "tid": 0, "ts": number, "dur": 1} for number in range(400_000)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    program = f"""
    from kinetoscope.cli import main

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    open(ready, "w").close()
    while os.path.exists(ready):
        try:
            os.write(1, b".")
            time.sleep(0.02)
        except OSError:
            break
    sys.stderr.isatty = lambda: True  # as it was when the bar was begun
    os._exit(main(["convert", {str(tmp_path / "trace.json")!r}, "-o", {str(tmp_path / "new.json.gz")!r}]))
    """
    terminal = Terminal(tmp_path, program)
    terminal.wait_until_it_trains()
    terminal.go_away()
    terminal.process.wait(60)
    assert (tmp_path / "new.json.gz").exists()
