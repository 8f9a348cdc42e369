"""The command ``kinetoscope try``: measurements of fixes on the user's training run."""

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import comb
from pathlib import Path

import msgspec

from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.autoinstrument.trial_files import MIN_STEPS
from kinetoscope.cli.arg_types import parse_positive_int, parse_positive_minutes, parse_whole_number
from kinetoscope.cli.loading import read_findings
from kinetoscope.cli.options import add_json
from kinetoscope.cli.progress import elapsed_line
from kinetoscope.cli.run import explain_not_executable, find_option
from kinetoscope.cli.signals import catch_signals
from kinetoscope.core.job.ranks import detect_ranks
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, WITHOUT_RUN_FOLDERS, RunFolder
from kinetoscope.core.text.wording import format_file_size, sanitize
from kinetoscope.errors import SettingsError
from kinetoscope.experiments.experiment import ExperimentRun, Options
from kinetoscope.experiments.guard_job import guard_starts
from kinetoscope.experiments.plan import (
    MAX_PAIRED,
    MAX_ROWS,
    Request,
    order_requests,
    parse_requests,
    suggest_requests,
)
from kinetoscope.experiments.start import Command, size_of
from kinetoscope.formats.experiments import FOLDER, Experiment, write_experiment
from kinetoscope.native import require_recorder
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Variant, load_variants

_INTERRUPTED = 130
_STARTS = "starts"
_SRUN_NODES = re.compile(r"srun .*?(?<= )(?:-N *|--nodes[= ])(\S+)")
_EXAMPLES = """\
examples:
  kinetoscope try python train.py
      record a few steps, and measure the fixes that their findings suggest
  kinetoscope try --run runs/digits --fix 1 -- torchrun --nproc-per-node 2 train.py
      measure the fixes of finding 1 of `kinetoscope summary runs/digits`
  kinetoscope try --fix num_workers=4 --fix fused --yes -- bash train.sh
      measure two variants, without a question
  kinetoscope try --dry-run python train.py
      list the variants

The command is started many times: each start runs some steps and is ended. It writes,
deletes, uploads and resumes as the command does; --copy gives each start a fresh copy
of the working folder. No file is changed by Kinetoscope itself.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``try``."""
    parser.epilog = _EXAMPLES
    parser.usage = "kinetoscope try [OPTION...] [--] COMMAND..."
    parser.add_argument("--run", metavar="RUN", help="run folder whose findings are tried")
    parser.add_argument(
        "--fix",
        metavar="FIX",
        action="append",
        default=[],
        help="finding of RUN by number or id, or variant as NAME or NAME=VALUE; repeatable",
    )
    parser.add_argument(
        "-n",
        "--num-steps",
        metavar="N",
        type=parse_positive_int,
        default=60,
        help=f"measure N steps per start, fewer where they are slow (default: 60; at least {MIN_STEPS})",
    )
    parser.add_argument(
        "--rounds", metavar="N", type=parse_whole_number, default=3, help="run at least N rounds of starts (default: 3)"
    )
    parser.add_argument(
        "--max-minutes",
        metavar="M",
        type=parse_positive_minutes,
        default=10.0,
        help="stop after M minutes (default: 10)",
    )
    parser.add_argument("--variants", metavar="FILE", action="append", default=[], help="Python file with variants")
    parser.add_argument("-o", "--output", metavar="DIR", help="folder of the result (default: RUN, or runs/try-TIME)")
    parser.add_argument("--dry-run", action="store_true", help="list the variants, and start nothing")
    parser.add_argument("--copy", action="store_true", help="copy the working folder for each start")
    parser.add_argument("--yes", action="store_true", help="start without a question")
    add_json(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="command, with its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Measure the variants; return 130 after an interrupt."""
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    files = [Path(file).absolute() for file in arguments.variants]
    variants = load_variants(files)
    findings = read_findings(arguments.run) if arguments.run else None
    requests = _choose_requests(arguments, variants, findings)
    if arguments.dry_run:
        if arguments.json:
            raise SettingsError("--dry-run prints no JSON. Leave out --json.")
        _print_variants(requests, variants)
        return 0
    _check(arguments, words)
    options = Options(
        max(MIN_STEPS, arguments.num_steps), arguments.rounds, arguments.max_minutes * 60, tuple(map(str, files))
    )
    command = Command(words, Path.cwd(), copies=arguments.copy)
    out, name = _make_folder(arguments)
    is_agreed = False
    try:
        is_agreed = _is_agreed(arguments, options, requests)
    finally:
        if not is_agreed:
            _delete_new_folder(arguments, out, name)
    if not is_agreed:
        _print_progress("Nothing was started.")
        return 1
    find_requests = None if requests else partial(_suggest_from_recording, out=out, variants=variants)
    starts = out / name / _STARTS
    try:
        with catch_signals() as received, guard_starts(starts), elapsed_line() as show_start:
            experiment = ExperimentRun(
                command,
                requests,
                options,
                starts,
                is_interrupted=lambda: not received.empty(),
                report=_print_progress,
                show_start=show_start,
                find_requests=find_requests,
            )
            result = experiment.run()
            write_experiment(RunFolder(out), name, result)
    except BaseException:
        _delete_new_folder(arguments, out, name)
        raise
    _print_result(arguments, result, out / name)
    return _INTERRUPTED if experiment.was_interrupted else 0


def _choose_requests(
    arguments: argparse.Namespace, variants: Mapping[str, Variant], findings: Sequence[Finding] | None
) -> list[Request]:
    """Return what is requested; nothing if the first start is to be recorded."""
    if arguments.fix:
        return parse_requests(arguments.fix, variants, findings)
    return [] if findings is None else suggest_requests(findings, variants)


def _suggest_from_recording(recording: Path, out: Path, variants: Mapping[str, Variant]) -> list[Request]:
    """Keep the recording of the first start as a run, and return requests for its findings."""
    for path in recording.iterdir():
        if not (out / path.name).exists():
            shutil.move(path, out / path.name)
    return suggest_requests(read_findings(str(out)), variants)


def _check(arguments: argparse.Namespace, words: Sequence[str]) -> None:
    """Raise `SettingsError` for a command that cannot be measured."""
    if not words:
        raise SettingsError("Missing command. Try: kinetoscope try python train.py")
    if not HAS_RUN_FOLDERS:
        raise SettingsError(f"`kinetoscope try` does not work here: {WITHOUT_RUN_FOLDERS}")
    require_recorder()
    if error := explain_not_executable("try", words[0]):
        raise SettingsError(error)
    if _has_several_nodes(words, os.environ):
        raise SettingsError("This command has ranks on other machines, which `kinetoscope try` does not start.")
    if not arguments.yes and not sys.stdin.isatty():
        raise SettingsError("The command would be started many times. Pass --yes to start it without a question.")


def _has_several_nodes(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether this process is one of several nodes, or the command starts ranks on several.

    An allocation of Slurm may have more nodes than the command uses: only srun starts one task on each by default.
    """
    ranks = detect_ranks(environment)
    if ranks.world_size > ranks.local_world_size or (environment.get("SLURM_STEP_NUM_NODES") or "1") != "1":
        return True
    if find_option(words, "nnodes") not in (None, "1", "1:1"):
        return True
    if "srun" not in map(os.path.basename, words):
        return False
    option = _SRUN_NODES.search(" ".join(words))
    nodes = option[1] if option else environment.get("SLURM_NNODES") or "1"
    return nodes not in ("1", "1-1")


def _make_folder(arguments: argparse.Namespace) -> tuple[Path, str]:
    """Create the folder of the result; return the run folder and its name in it."""
    at = time.strftime("%Y%m%d-%H%M%S")
    out = Path(arguments.output or arguments.run or f"runs/try-{at}").absolute()
    name = f"{FOLDER}/{at}"
    try:
        RunFolder(out).make_folder(name)
    except OSError as error:
        raise SettingsError(
            f"Cannot write to the folder {out}: {error.strerror or error}. Pass another one with -o."
        ) from error
    return out, name


def _delete_new_folder(arguments: argparse.Namespace, out: Path, name: str) -> None:
    """Delete the new folders of this call that are empty."""
    folders = [out / name, out / FOLDER]
    if not (arguments.output or arguments.run):
        folders += [out, out.parent]
    for folder in folders:
        with suppress(OSError):  # a result or a log is in it
            folder.rmdir()


def _is_agreed(arguments: argparse.Namespace, options: Options, requests: Sequence[Request]) -> bool:
    """Print the number of starts, and return whether the user agrees."""
    num_rows = min(MAX_ROWS, max(1, len(requests)))
    has_values = bool(requests) and all(request.value is not None for request in requests)
    num_names = len({request.variant.name for request in requests}) or MAX_PAIRED
    max_rows, max_pairs = num_rows if has_values else MAX_ROWS, comb(min(MAX_PAIRED, num_names), 2)
    counts = dict.fromkeys([options.num_starts(num_rows), options.num_starts(max_rows, max_pairs)])
    lines = [
        f"The command will be started {' to about '.join(map(str, counts))} times, more where its step time varies, "
        f"for at most {options.max_s / 60:g} min.",
        "Each start writes, deletes, uploads and resumes as the command does. Experiment trackers are disabled.",
    ]
    if arguments.copy:
        lines.append(f"Each start gets a copy of {Path.cwd()}: {format_file_size(size_of(Path.cwd()))}.")
    print("\n".join(lines), file=sys.stderr, flush=True)
    if arguments.yes:
        return True
    print("Start? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_progress(line: str) -> None:
    with suppress(OSError, ValueError):  # the terminal may be closed
        print(sanitize(line, 200), file=sys.stderr, flush=True)


def _print_variants(requests: Sequence[Request], variants: Mapping[str, Variant]) -> None:
    from rich.console import Console

    from kinetoscope.report.terminal.experiments import render_variants

    rows = list[tuple[str, str, str, str]]()
    for number, request in enumerate(order_requests(requests) or map(Request, variants.values())):
        one, value = request.variant, request.value
        tried = "yes" if value is not None else "if it applies"
        if not requests and one.on_request:
            tried = "if named by --fix"
        elif requests and number >= MAX_ROWS:
            tried = f"if fewer than {MAX_ROWS} others are"
        label, code = one.name if value is None else f"{one.name}={value}", one.describe_code(value, Facts())
        rows.append((label, code, "equal" if one.keeps_results else "may differ", tried))
    Console(highlight=False).print(render_variants(rows))


def _print_result(arguments: argparse.Namespace, result: Experiment, folder: Path) -> None:
    if arguments.json:
        print(msgspec.json.encode(result).decode())
        return
    from rich.console import Console

    from kinetoscope.report.terminal.experiments import render_experiment

    console = Console(highlight=False)
    console.print(render_experiment(result, console.width))
    console.print(f"Result: {sanitize(folder)}", markup=False, soft_wrap=True)
    if any(folder.glob(f"{_STARTS}/*/log")):
        console.print(f"Logs of failed starts: {sanitize(folder / _STARTS)}", markup=False, soft_wrap=True)
