"""Large damaged files on the command line: there is a progress bar, Ctrl-C works, and memory stays small."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from support.fork_server import KINETOSCOPE_MODULES, RUN_COMMAND, start_forked
from support.polling import wait_for

LONG_READING = 4  # times the smallest file, so that it is not done before it is interrupted
EXCUSED = 5  # times the size of the file, as 1 GB for 200 MB
MAX_WAIT_S = 150
COMMANDS = {
    "info": ["info", "--no-cache", "in.json"],
    "check": ["check", "in.json"],
    "repair": ["check", "in.json", "--repair", "out.json"],
    "merge": ["merge", "-o", "out.json", "in.json"],
    "convert": ["convert", "in.json", "-o", "out.pftrace"],
    "columns": ["convert", "in.json", "-o", "out.parquet"],
}
TO_TERMINAL = """
import os
os.dup2(os.open(os.environ["TERMINAL"], os.O_RDWR | os.O_NOCTTY), 2)
"""
# Ctrl-C at the moment at which the command begins to write a file: it hears of it before the file is complete.
INTERRUPTED = """
import os, signal, sys, time
def interrupt(event, arguments):
    global is_writing
    if event == "open" and str(arguments[0]).endswith(".partial") and not is_writing:
        is_writing = True
        os.kill(os.getpid(), signal.SIGINT)
        while signal.SIGINT in signal.sigpending():
            time.sleep(0.001)
        time.sleep(0.2)
is_writing = False
sys.addaudithook(interrupt)
"""
BARS = {"info": "reading", "check": "checking", "repair": "repairing", "merge": "merging"}
# How many more bytes the process takes for in.json than for small/in.json, which it reads first.
GROWTH = """
import contextlib, io, os, sys
from kinetoscope.cli import main
def peak_bytes():
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return 1024 * int(peak.split()[1])
os.chdir("small")
with contextlib.redirect_stderr(io.StringIO()):
    main(sys.argv[1:])
before = peak_bytes()
os.chdir("..")
main(sys.argv[1:])
print("grown:", peak_bytes() - before, file=sys.stderr)
"""


def damaged_event(number: int) -> bytes:
    """Return an event that is not strict JSON: its name has quotes that are not escaped. Every hundredth cannot be read
    at all."""
    args = {"External id": number, "Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    event = {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 10 * number, "dur": 5}
    text = json.dumps(event | {"args": args}, indent=1)
    return text.replace('"name": "', '"name": ' if number % 100 == 99 else '"name": "say "x" ').encode() + b",\n"


def write_trace(path: Path, events: list[bytes]) -> None:
    path.write_bytes(b'{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [\n' + b"".join(events))


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> dict[int, Path]:
    """The files, by their size."""
    folder = tmp_path_factory.mktemp("damaged")
    files = {num_bytes: folder / f"{num_bytes}.json" for num_bytes in (2_500_000, 3_500_000)}
    events = [damaged_event(number) for number in range(max(files) // len(damaged_event(100_000)))]
    for num_bytes, path in files.items():
        write_trace(path, events[: len(events) * num_bytes // max(files)])
    return files


@pytest.fixture(scope="module")
def larger(large) -> Path:
    path = large[2_500_000].with_name("larger.json")
    path.write_bytes(large[2_500_000].read_bytes() * LONG_READING)
    return path


@pytest.fixture(params=COMMANDS)
def verb(request) -> str:
    return request.param


class OnTerminal:
    """A program whose stderr is a terminal; a context, so that it never outlives the test."""

    def __init__(self, program: str, arguments: list[str], folder: Path, **variables: str) -> None:
        self._terminal, self._side_of_program = pty.openpty()
        environment = os.environ | {"TERM": "xterm", "TERMINAL": os.ttyname(self._side_of_program)} | variables
        program = TO_TERMINAL + program
        self._running = start_forked(
            (*KINETOSCOPE_MODULES, "polars"), program, *arguments, folder=folder, environment=environment
        )
        self.output = ""

    def __enter__(self) -> "OnTerminal":
        return self

    def __exit__(self, *exception: object) -> None:
        self._running.kill()
        self._running.wait()
        os.close(self._terminal)
        os.close(self._side_of_program)

    def read_until(self, is_reached: Callable[[], bool]) -> None:
        """Read the output until a condition holds, or the program has ended."""
        until = time.monotonic() + MAX_WAIT_S
        while not is_reached():
            assert time.monotonic() < until, self.output
            has_ended = self._running.has_ended()
            if select.select([self._terminal], [], [], 0.002)[0]:
                self.output += os.read(self._terminal, 1 << 16).decode(errors="replace")
            elif has_ended:
                return

    def interrupt(self) -> None:
        os.kill(self._running.pid, signal.SIGINT)

    def status(self) -> int:
        """Return the exit status; reads the rest of the output."""
        self.read_until(lambda: False)
        return self._running.wait(MAX_WAIT_S).returncode


def test_bar_shows_the_read_part_of_a_damaged_file_within_five_times_its_memory(large, tmp_path, verb):
    (tmp_path / "small").mkdir()
    write_trace(tmp_path / "small" / "in.json", [damaged_event(number) for number in range(400)])
    num_bytes = 2_500_000  # so that a file takes more memory than the command itself
    os.link(large[num_bytes], tmp_path / "in.json")
    with OnTerminal(GROWTH, COMMANDS[verb], tmp_path) as command:
        assert command.status() == 0, command.output
    assert BARS.get(verb, "converting") in command.output
    assert re.search(r"[1-9]\d*%", command.output), command.output
    assert int(command.output.rpartition("grown: ")[2]) < EXCUSED * num_bytes
    assert len(list(tmp_path.glob("out.*"))) == sum(argument.startswith("out.") for argument in COMMANDS[verb])


def test_ctrl_c_ends_a_command_with_one_sentence_and_leaves_no_part_of_a_file(large, larger, tmp_path, verb):
    is_writing = verb in ("repair", "merge", "convert")
    os.link(large[3_500_000] if is_writing else larger, tmp_path / "in.json")
    with OnTerminal(INTERRUPTED + RUN_COMMAND, COMMANDS[verb], tmp_path) as command:
        if not is_writing:
            command.read_until(lambda: re.search(r"[1-9]\d*%", command.output) is not None)
            command.interrupt()
        assert command.status() == 130, command.output
    name = COMMANDS[verb][0]
    assert command.output.count(f"kinetoscope {name}: interrupted.") == 1
    assert "Traceback" not in command.output
    assert os.listdir(tmp_path) == ["in.json"]


def test_ctrl_c_ends_the_work_on_several_files(large, tmp_path):
    for name in ("in.json", "other.json"):
        os.link(large[3_500_000], tmp_path / name)
    check = ["check", "in.json", "other.json", "--repair", "fixed"]
    with OnTerminal(INTERRUPTED + RUN_COMMAND, check, tmp_path) as command:
        assert command.status() == 130, command.output
    assert command.output.count("kinetoscope check: interrupted") == 1
    assert "Traceback" not in command.output
    assert not any(tmp_path.glob("fixed/.*"))


def test_ctrl_c_ends_a_command_that_waits_for_a_pipe(tmp_path):
    command = [sys.executable, "-m", "kinetoscope", "info", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"[" + b" " * 1_000_000)
        process.stdin.flush()
        wait_for(lambda: num_unread(process.stdin) == 0 and state_of(process) == "S")
        process.send_signal(signal.SIGINT)
        assert process.wait(MAX_WAIT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read().count(b"\n") == 1


def num_unread(pipe: IO[bytes]) -> int:
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def state_of(process: subprocess.Popen[bytes]) -> str:
    """Return the state of a process: ``S`` if it waits."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]
