"""Time of `kinetoscope status` for a run of 1,024 ranks, eight of them on this machine."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks.suite import Measure, SuiteResult
from kinetoscope.core.clock.clock import SystemClock
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.formats.struct_json import encode_struct
from kinetoscope.pulse.header import decode_header
from kinetoscope.pulse.layout import ABOUT_AT, FOLDER, HEADER_BYTES, SUFFIX
from kinetoscope.pulse.pulse_recorder import LENGTH, PulseRecorder
from kinetoscope.status.health import read_run_status
from kinetoscope.status.status_screen import build_status_screen
from kinetoscope.status.terminal import render_status

_NUM_RANKS, _QUICK_RANKS, _PER_HOST, _NUM_STEPS = 1024, 64, 8, 6000
_START = "20261126T000000-1"


def run(*, quick: bool) -> SuiteResult:
    """Write the pulses and look at them, in this process and with the command."""
    num_ranks = _QUICK_RANKS if quick else _NUM_RANKS
    with tempfile.TemporaryDirectory(prefix="status-") as name:
        folder = Path(name, "run")
        _write_pulses(folder, num_ranks)
        looks = [_measure_table_s(folder, num_ranks) for _ in range(3 if quick else 20)]
        commands = [_measure_command_s(folder) for _ in range(1 if quick else 5)]
    measures = [
        Measure(f"{num_ranks:,} pulses on the screen", statistics.median(looks), "s", f"at most {max(looks):.2f}"),
        Measure(f"kinetoscope status, {num_ranks:,} ranks", min(commands), "s", "the interpreter's start in it"),
    ]
    return SuiteResult(
        suite="status",
        title=f"the status of a run of {num_ranks:,} ranks",
        measures=measures,
        notes=["Pulses of 6,000 steps, in the page cache, eight of them of a process of this machine."],
    )


def _write_pulses(folder: Path, num_ranks: int) -> None:
    """Record one pulse, and copy it for the other ranks."""
    pulse = PulseRecorder(SystemClock())
    pulse.open(folder, Ranks(0, 0, num_ranks, _PER_HOST), Attempt("run", 0, os.getpid(), f"{_START}-0", "host0"))
    for number in range(_NUM_STEPS):
        pulse.end_step(Timestamp(batch=number + 1))
    (path,) = (folder / FOLDER).glob(f"*{SUFFIX}")
    content = bytearray(path.read_bytes())
    process = decode_header(bytes(content), path).process
    for rank in range(1, num_ranks):
        host = rank // _PER_HOST
        attempt = Attempt("run", 0, os.getpid(), f"{_START}-{rank}", f"host{host}")
        space = process.pid_space if host == 0 else f"another.{host}"
        ranks = Ranks(rank, rank % _PER_HOST, num_ranks, _PER_HOST, host)
        about = encode_struct(msgspec.structs.replace(process, ranks=ranks, attempt=attempt, pid_space=space))
        content[ABOUT_AT:HEADER_BYTES] = (LENGTH.pack(len(about)) + about).ljust(HEADER_BYTES - ABOUT_AT, b"\0")
        (folder / FOLDER / f"{attempt.start}{SUFFIX}").write_bytes(content)


def _measure_table_s(folder: Path, num_ranks: int) -> float:
    console = Console(file=open(os.devnull, "w"), width=120)  # noqa: SIM115 - it is closed with the process
    began_s = time.perf_counter()
    status = read_run_status(folder)
    console.print(render_status(build_status_screen(status), console.width))
    took_s = time.perf_counter() - began_s
    assert len(status.ranks) == num_ranks
    return took_s


def _measure_command_s(folder: Path) -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "kinetoscope", "status", folder], stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began_s
