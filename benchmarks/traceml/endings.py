"""Data left by a run that ends early, is not instrumented, or has a neighbour."""

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from benchmarks.traceml.tools import (
    FinishedRun,
    Training,
    finish,
    kinetoscope,
    read_report,
    start,
)

_END_AT = 30
_LONG = Training(
    script="long_training.py", arguments=("--steps", "100000", "--end-at", str(_END_AT)), num_recorded=1000
)
_WAIT_S = 60


@dataclass(frozen=True)
class Ending:
    """End of a run, and its number of steps by the tool. ``exit_code`` is that of the process that the user started."""

    exit_code: int
    num_steps: int


ENDINGS = {"exit": 3, "wait": 128 + signal.SIGTERM, "kill": 128 + signal.SIGKILL}
"""Ways to end, and the exit code that Python has then: after 31 steps, by `sys.exit(3)`, SIGTERM and SIGKILL."""


def end_early(how: str, tool: str, folder: Path) -> Ending:
    """Run a training job that ends early. SIGTERM goes to the process that the user started."""
    out = folder / f"{tool}-{how}"
    process = start(tool, _LONG.with_arguments("--ending", how), out)
    if how == "wait":
        _wait_for(out.with_name(f"{out.name}-begun"), process)
        process.terminate()
    ran = finish(tool, out, process)
    if tool == "kinetoscope" and how == "kill":
        kinetoscope("recover", str(out))
    return Ending(ran.exit_code, _num_steps(ran))


def run_two_at_once(tool: str, folder: Path) -> list[Ending]:
    """Run two training jobs at the same time, each started as if it were alone."""
    training = Training(script="long_training.py", arguments=("--steps", "1000"))
    outs = [folder / f"{tool}-neighbour-{number}" for number in (1, 2)]
    processes = [start(tool, training, out, on_free_ports=False) for out in outs]
    ran = [finish(tool, out, process) for out, process in zip(outs, processes, strict=True)]
    return [Ending(one.exit_code, _num_steps(one)) for one in ran]


def _wait_for(path: Path, process: "Popen[str]") -> None:
    deadline = time.monotonic() + _WAIT_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"The training did not begin within {_WAIT_S} s: {path} is missing.")
        time.sleep(0.05)


def _num_steps(ran: FinishedRun) -> int:
    try:
        return read_report(ran).num_steps
    except (OSError, ValueError):  # nothing is left that could be read
        return 0
