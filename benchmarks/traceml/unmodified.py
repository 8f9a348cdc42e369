"""An uninstrumented script, started by `traceml run` and by `kinetoscope run`."""

import json
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from subprocess import PIPE, STDOUT, Popen

import psutil

from benchmarks.traceml.endings import ENDINGS
from benchmarks.traceml.tools import BIN, PYTHON, free_port, traceml_command, traceml_summary
from kinetoscope import load

_SCRIPT = Path(__file__).parent / "scripts" / "unmodified_training.py"
_END_AT = 300
_NUM_STEPS = 400
_NUM_QUICK_STEPS = 50_000
_NUM_ROUNDS = 7
_TIMEOUT_S, _MAX_WAIT_S = 120, 20
_NEVER = ("--after", "1000000000")


@dataclass(frozen=True)
class _FinishedRun:
    """An ended run: its exit code as a shell has it, when it began and was over, and what the script printed."""

    tool: str
    out: Path
    exit_code: int
    began_ns: int
    ended_ns: int
    moments_ns: dict[str, int]

    @property
    def num_steps(self) -> int:
        """Return the number of steps in the tool's report."""
        try:
            if self.tool == "traceml":
                text = traceml_summary(self.out).read_text()
                return json.loads(text)["primary_diagnosis"]["evidence"]["steps_analyzed"]
            return int(load(self.out).all_steps["num_steps"].sum())
        except (OSError, ValueError):  # nothing is left that could be read
            return 0

    @property
    def start_s(self) -> float:
        """Time from the command to the end of the first step."""
        return (self.moments_ns["first"] - self.began_ns) / 1e9

    @property
    def end_s(self) -> float:
        """Time from the end of the loop to that of the command."""
        return (self.ended_ns - self.moments_ns["last"]) / 1e9


def rows(folder: Path, *, quick: bool) -> list[list[str]]:
    """Return the rows of the table, of TraceML and of ours. The folder is made."""
    folder.mkdir(exist_ok=True)
    tools = ("traceml", "kinetoscope")
    whole = [_run(tool, folder / f"{tool}-whole", "--steps", str(_NUM_STEPS)) for tool in tools]
    table_rows = [["a plain loop of 400 steps: steps in its report", *(f"{ran.num_steps} steps" for ran in whole)]]
    for how, what in {"exit": "`sys.exit(3)`", "wait": "SIGTERM", "kill": "SIGKILL"}.items():
        ran = [_run(tool, folder / f"{tool}-{how}", "--end-at", str(_END_AT), "--ending", how) for tool in tools]
        head = f"{what} in step {_END_AT + 1} (Python's own exit code: {ENDINGS[how]})"
        table_rows.append([head, *(f"{one.exit_code}, {one.num_steps} steps" for one in ran)])
    at_once = [_run_two_at_once(tool, folder) for tool in tools]
    table_rows.append(["two runs at once, as if each were alone", *("; ".join(both) for both in at_once)])
    helpers = [str(_count_helpers(tool, folder)) for tool in tools]
    table_rows.append(["processes in addition to training, while nothing is recorded", *helpers])
    quickly = [_run(tool, folder / f"{tool}-quick", "--steps", str(_NUM_QUICK_STEPS)) for tool in tools]
    table_rows.append([f"{_NUM_QUICK_STEPS:,} short steps: in its report", *(f"{ran.num_steps:,}" for ran in quickly)])
    return [*table_rows, *_measure_times(folder, 2 if quick else _NUM_ROUNDS)]


def _measure_times(folder: Path, num_rounds: int) -> list[list[str]]:
    """Return the median additional time of start and end, compared with alternating runs without a tool."""
    ways = {"none": (), "traceml": (), "kinetoscope": _NEVER, "finding": (), "report": ("--report",)}
    ran: dict[str, list[_FinishedRun]] = {way: [] for way in ways}
    for number in range(num_rounds):
        for way, options in ways.items():
            tool = way if way in ("none", "traceml") else "kinetoscope"
            ran[way].append(_run(tool, folder / f"time-{way}-{number}", "--steps", "200", options=options))

    def format_delay(way: str, part: str) -> str:
        times = [median(getattr(one, part) for one in ran[name]) for name in (way, "none")]
        return f"{times[0] - times[1]:.2f} s"

    return [
        [
            "import and start, to the end of the first step",
            format_delay("traceml", "start_s"),
            format_delay("kinetoscope", "start_s"),
        ],
        ["its end, where nothing was recorded", format_delay("traceml", "end_s"), format_delay("kinetoscope", "end_s")],
        ["its end, with a trace and its first finding", "", format_delay("finding", "end_s")],
        ["its end, with the report, too", "", format_delay("report", "end_s")],
    ]


def _command(tool: str, out: Path, arguments: Sequence[str], options: Sequence[str], *, ports: bool) -> list[str]:
    if tool == "none":
        return [str(PYTHON), str(_SCRIPT), *arguments]
    if tool == "kinetoscope":
        return [str(BIN / "kinetoscope"), "run", "-o", str(out), *options, str(PYTHON), str(_SCRIPT), *arguments]
    own_ports = ["--aggregator-port", str(free_port()), "--master-port", str(free_port())] if ports else []
    return traceml_command(_SCRIPT, out, own_ports, arguments)


def _start(
    tool: str, out: Path, *arguments: str, options: Sequence[str] = (), ports: bool = True
) -> tuple[int, "Popen[str]"]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    began_ns = time.time_ns()
    command = _command(tool, out, arguments, options, ports=ports)
    return began_ns, Popen(command, cwd=out.parent, env=environment, text=True, stdout=PIPE, stderr=STDOUT)


def _run(tool: str, out: Path, *arguments: str, options: Sequence[str] = ()) -> _FinishedRun:
    began_ns, process = _start(tool, out, *arguments, options=options)
    if "wait" in arguments:
        _wait_for_end(process)
        process.send_signal(signal.SIGTERM)
    return _finish(tool, out, began_ns, process)


def _finish(tool: str, out: Path, began_ns: int, process: "Popen[str]") -> _FinishedRun:
    printed, _ = process.communicate(timeout=_TIMEOUT_S)
    ended_ns, code = time.time_ns(), process.returncode
    fields = [line.split() for line in printed.splitlines()]
    moments = {words[0]: int(words[1]) for words in fields if len(words) == 2 and words[1].isdigit()}
    return _FinishedRun(tool, out, code if code >= 0 else 128 - code, began_ns, ended_ns, moments)


def _wait_for_end(process: "Popen[str]") -> None:
    """Wait until the script reports that it waits for a signal, or long enough if its tool captures the output."""
    assert process.stdout is not None
    deadline, printed = time.monotonic() + _MAX_WAIT_S, b""
    while b"end " not in printed and time.monotonic() < deadline and process.poll() is None:
        if select.select([process.stdout], [], [], 0.2)[0]:
            printed += os.read(process.stdout.fileno(), 4096)


def _run_two_at_once(tool: str, folder: Path) -> list[str]:
    outs = [folder / f"{tool}-neighbour-{number}" for number in (1, 2)]
    started = [_start(tool, out, "--steps", "3000", ports=False) for out in outs]
    ran = [_finish(tool, out, *one) for out, one in zip(outs, started, strict=True)]
    return [f"{one.exit_code}, {one.num_steps} steps" for one in ran]


def _count_helpers(tool: str, folder: Path) -> int:
    """Return the number of processes besides the training process after recording has ended."""
    _, process = _start(tool, folder / f"{tool}-helpers", "--end-at", str(_END_AT), "--ending", "wait")
    _wait_for_end(process)
    time.sleep(3)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=_TIMEOUT_S)
    return len(family)
