"""``kinetoscope run``: runs any command, and records the training in it, whose code stays as it is."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kinetoscope import __version__
from kinetoscope.cli.numbers import count_of_one_or_more, whole_number
from kinetoscope.errors import SettingsError
from kinetoscope.formats.manifest import STARTED
from kinetoscope.paths.run_folder import HAS_RUN_FOLDERS, WITHOUT_RUN_FOLDERS
from kinetoscope.texts.wording import shown
from kinetoscope.unmodified.settings import VARIABLE, AutoSettings

_INJECTED = Path(__file__).parent.parent / "unmodified" / "injected"
_NOT_FOUND, _NOT_ALLOWED = 127, 126
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "FLUX_JOB_ID")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_EXAMPLES = """\
examples:
  kinetoscope run python train.py --epochs 3
      steps 11 to 20 of the training, after one that warms up, into a folder below runs
  kinetoscope run -o runs/digits --diagnose --report torchrun --nproc-per-node 4 train.py
      on four ranks, with all that findings use; ends with runs/digits/report.html
  kinetoscope run --after 1000 --num-steps 20 -- ./train.sh
      a shell script that starts the training, once it has gone on for a while

Nothing changes in the training: its output, its exit code and its losses are those of the command alone. A step ends
when the training asks a DataLoader for data after a step of an optimizer; without a DataLoader, with each step of its
first optimizer. All steps are timed (docs/pulse.md), and some are recorded in full.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``run``."""
    parser.epilog = _EXAMPLES
    parser.usage = "kinetoscope run [OPTION...] [--] COMMAND..."
    parser.add_argument("-o", "--output", metavar="DIR", help="the folder of the run (default: runs/JOB or runs/TIME)")
    parser.add_argument(
        "--num-steps",
        metavar="N",
        type=count_of_one_or_more,
        help="how many steps to record (10; with --diagnose at least 1 s of steps below 5 ms)",
    )
    parser.add_argument(
        "--after", metavar="N", type=whole_number, default=10, help="how many steps to skip before (10)"
    )
    parser.add_argument(
        "--count-by", choices=("fetch", "optimizer"), help="what ends a step, if it is not to be found out"
    )
    parser.add_argument("--diagnose", action="store_true", help="record all that findings use, about 1 %% of a step")
    parser.add_argument(
        "--slow-steps", action="store_true", help="keep also steps that are slow while nothing is recorded, 20 an hour"
    )
    parser.add_argument("--report", action="store_true", help="end with a report, report.html in the run's folder")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command, with its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Becomes the command, which needs no process of ours beside it."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise SettingsError("There is no command to run. An example: kinetoscope run python train.py")
    if shutil.which(command[0]) is None:
        name, is_there = shown(command[0]), os.path.exists(command[0])
        how = f" A script of Python's: kinetoscope run python {name}" if name.endswith(".py") else ""
        what = "cannot be executed" if is_there else "is no command"
        print(f"kinetoscope run: {name} {what}.{how}", file=sys.stderr)
        return _NOT_ALLOWED if is_there else _NOT_FOUND
    if not HAS_RUN_FOLDERS:
        print(f"kinetoscope run: nothing is recorded: {WITHOUT_RUN_FOLDERS}", file=sys.stderr, flush=True)
        return subprocess.call(command)  # Windows cannot replace this process by another one
    out = os.path.abspath(arguments.output or default_output(command))
    _note_start(Path(out))
    settings = AutoSettings(
        out=out,
        num_steps=arguments.num_steps,
        after=arguments.after,
        count_by=arguments.count_by,
        diagnose=arguments.diagnose,
        report=arguments.report,
        slow_steps=arguments.slow_steps,
        pid=os.getpid(),  # the command takes the place of this process
        started_ns=time.time_ns(),
    )
    _become(command, environment_with(settings))
    return 0


def default_output(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """The folder of a run that was given none: all nodes of a job must choose the same."""
    job = next((environment[name] for name in _JOBS if environment.get(name)), None) or _option(command, "rdzv-id")
    nodes = _option(command, "nnodes")
    if job is None and nodes not in (None, "1", "1:1"):
        raise SettingsError(
            "The nodes of this job cannot agree on a folder by themselves. Pass -o with one that all of them see, or "
            "give torchrun a --rdzv-id."
        )
    return f"runs/{_UNSAFE.sub('-', job) if job else time.strftime('%Y%m%d-%H%M%S')}"


def _option(command: Sequence[str], name: str) -> str | None:
    """The value of an option of torchrun's, which takes its names with - and _."""
    names = (f"--{name}", f"--{name.replace('-', '_')}")
    for place, word in enumerate(command):
        option, has_value, value = word.partition("=")
        if option in names:
            return value if has_value else next(iter(command[place + 1 :]), None)
    return None


def environment_with(settings: AutoSettings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which each Python begins with `unmodified/injected/sitecustomize.py`."""
    path = os.pathsep.join(filter(None, [str(_INJECTED), environment.get("PYTHONPATH")]))
    return {**environment, "PYTHONPATH": path, VARIABLE: settings.to_variable()}


def _note_start(folder: Path) -> None:
    """Notes in the run's folder that a command was started, so that others can say that no training came of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"kinetoscope": __version__, "started_ns": time.time_ns()})
        (folder / STARTED).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"The folder of the run, {folder}, cannot be written to: {error.strerror}. Choose another one with -o."
        ) from error


def _become(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replaces this process by the command, with the signals as they were: Python ignores some for itself."""
    for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], list(command), environment)
