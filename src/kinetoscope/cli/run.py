"""The command ``kinetoscope run``: any command, recorded without code changes."""

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
from kinetoscope.autoinstrument.settings import AutoSettings, build_environment
from kinetoscope.cli.arg_types import parse_whole_number
from kinetoscope.cli.options import add_num_steps
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, WITHOUT_RUN_FOLDERS
from kinetoscope.core.paths.run_groups import store_command_hash
from kinetoscope.core.text.wording import sanitize
from kinetoscope.errors import SettingsError
from kinetoscope.formats.manifest import START_FILE

_EXIT_NOT_FOUND, _EXIT_NOT_EXECUTABLE = 127, 126
_JOB_ID_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "FLUX_JOB_ID")
_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")
_EXAMPLES = """\
examples:
  kinetoscope run python train.py --epochs 3
      skip steps 0 to 9, warm up in step 10, and record steps 11 to 20 into runs/TIME
  kinetoscope run -o runs/ddp --diagnose --report torchrun --nproc-per-node 4 train.py
      record four ranks with all that findings use, and write runs/ddp/report.html
  kinetoscope run --after 1000 -n 20 -- ./train.sh
      record 20 steps after the first 1,000, of a shell script that starts the training

Output, exit code and losses of the command stay the same. A step ends when the loop
fetches the next batch from a DataLoader after an optimizer step; without a DataLoader,
at each step of the first optimizer. Every step is timed, and the selected steps are
recorded in full.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run``."""
    parser.epilog = _EXAMPLES
    parser.usage = "kinetoscope run [OPTION...] [--] COMMAND..."
    parser.add_argument("-o", "--output", metavar="DIR", help="run folder (default: runs/JOB or runs/TIME)")
    add_num_steps(parser, None, "; with --diagnose at least 1 s of steps below 5 ms")
    parser.add_argument(
        "--after", metavar="N", type=parse_whole_number, default=10, help="skip N steps first (default: 10)"
    )
    parser.add_argument("--count-by", choices=("fetch", "optimizer"), help="event that ends a step (default: detected)")
    parser.add_argument(
        "--diagnose", action="store_true", help="record everything that findings use; adds 1-2 %% of a step"
    )
    parser.add_argument(
        "--modules", action="store_true", help="record each call of a torch module; --diagnose does so, too"
    )
    parser.add_argument("--slow-steps", action="store_true", help="keep traces of outlier steps, up to 20 per hour")
    parser.add_argument("--report", action="store_true", help="write report.html into the run folder")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="command, with its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Replace this process by the command, with recording enabled in its environment."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise SettingsError("Missing command. Try: kinetoscope run python train.py")
    if error := explain_not_executable("run", command[0]):
        print(f"error: {error}", file=sys.stderr)
        return _EXIT_NOT_EXECUTABLE if os.path.exists(command[0]) else _EXIT_NOT_FOUND
    if not HAS_RUN_FOLDERS:
        print(f"warning: nothing is recorded: {WITHOUT_RUN_FOLDERS}", file=sys.stderr, flush=True)
        return subprocess.call(command)  # Windows cannot replace a process
    out = os.path.abspath(arguments.output or choose_output(command))
    _write_start_marker(Path(out))
    store_command_hash(Path(out), command)
    settings = AutoSettings(
        out=out,
        num_steps=arguments.num_steps,
        after=arguments.after,
        count_by=arguments.count_by,
        diagnose=arguments.diagnose,
        modules=arguments.modules,
        report=arguments.report,
        slow_steps=arguments.slow_steps,
        pid=os.getpid(),  # the command replaces this process and keeps its pid
        started_ns=time.time_ns(),
    )
    _exec(command, build_environment(settings))
    return 0


def choose_output(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """Return the default run folder, which is the same on all nodes of a job.

    Raises:
        SettingsError: the nodes have no job id in common.
    """
    job = next((environment[name] for name in _JOB_ID_VARIABLES if environment.get(name)), None) or find_option(
        command, "rdzv-id"
    )
    nodes = find_option(command, "nnodes")
    if job is None and nodes not in (None, "1", "1:1"):
        raise SettingsError(
            "The nodes of this job have no common run folder. Pass -o DIR on a shared file system, or --rdzv-id to "
            "torchrun."
        )
    return f"runs/{_UNSAFE_CHARACTERS.sub('-', job) if job else time.strftime('%Y%m%d-%H%M%S')}"


def explain_not_executable(verb: str, name: str) -> str:
    """Return why ``kinetoscope VERB`` cannot execute a command, with a remedy; "" if it can."""
    if shutil.which(name) is not None:
        return ""
    shown = sanitize(name)
    what = f"Cannot execute {shown}" if os.path.exists(name) else f"Command not found: {shown}"
    program = {".py": "python", ".sh": "bash"}.get(os.path.splitext(name)[1])
    return f"{what}. Try: kinetoscope {verb} {program} {shown}" if program else f"{what}."


def find_option(command: Sequence[str], name: str) -> str | None:
    """Return the value of an option of torchrun, which takes its names with - and _."""
    names = (f"--{name}", f"--{name.replace('-', '_')}")
    for index, word in enumerate(command):
        option, has_value, value = word.partition("=")
        if option in names:
            return value if has_value else next(iter(command[index + 1 :]), None)
    return None


def _write_start_marker(folder: Path) -> None:
    """Write the marker of a started command into the run folder, for commands that find no training in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"kinetoscope": __version__, "started_ns": time.time_ns()})
        (folder / START_FILE).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"Cannot write to the run folder {folder}: {error.strerror}. Pass another one with -o."
        ) from error


def _exec(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replace this process by the command, with default signal handlers: Python ignores some signals for itself."""
    for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], list(command), environment)
