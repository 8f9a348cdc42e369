"""The command ``kinetoscope status``: the state of each rank of a running job."""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from kinetoscope.cli.options import add_json, add_run
from kinetoscope.cli.paths import explain_no_pulse, find_run_folder, print_later_run
from kinetoscope.cli.signals import catch_signals, wait_for_signal
from kinetoscope.core.text.wording import sanitize_lines
from kinetoscope.report.terminal.screen import print_screen
from kinetoscope.status.health import RunState, RunStatus, read_run_status
from kinetoscope.status.status_screen import build_status_screen
from kinetoscope.status.terminal import render_status

_EXAMPLES = """\
examples:
  kinetoscope status runs/digits
      show step, phase, memory and loss of each rank; stragglers, killed and hung ranks
  kinetoscope status runs/digits --watch
      refresh every second, until Ctrl-C
  kinetoscope status runs/digits --json || echo "check the job"
      print JSON

status only reads, so run it at any time. Whether a process was killed is known on its
own machine only; elsewhere, a rank without heartbeat is unresponsive.

Exit codes: 0 running or finished, 2 wrong usage, 3 a rank is hung or unresponsive, 4
a rank was killed or failed with an exception, 5 no pulse.
"""
_SCHEMA = 2
_EXIT_CODES = {RunState.HUNG: 3, RunState.UNRESPONSIVE: 3, RunState.KILLED: 4, RunState.FAILED: 4, RunState.UNKNOWN: 5}
_REFRESH_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``status``."""
    parser.epilog = _EXAMPLES
    add_run(parser)
    parser.add_argument("--watch", action="store_true", help="refresh every second, until Ctrl-C")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the status once, or each second; return the exit code of the last one."""
    run_folder = find_run_folder(arguments.run_folder)
    if arguments.watch:
        return _watch(run_folder, is_json=arguments.json)
    status = read_run_status(run_folder)
    print_later_run([arguments.run_folder])
    _print(status, run_folder, is_json=arguments.json)
    return find_exit_code(status)


def find_exit_code(status: RunStatus) -> int:
    """Return the exit code of a status; 0 if nothing is wrong."""
    return _EXIT_CODES.get(status.state, 0)


def build_json(status: RunStatus) -> dict[str, Any]:
    """Return the status as JSON: times in nanoseconds, sizes in bytes, unknown values null."""
    rows = [asdict(rank) | {"state": rank.state.value} for rank in status.ranks]
    return {
        "schema": _SCHEMA,
        "state": status.state.value,
        "attempt": status.attempt,
        "world_size": status.world_size,
        "missing_ranks": status.missing,
        "collectives": msgspec.to_builtins(status.collectives),
        "notes": status.notes,
        "ranks": rows,
    }


def _watch(run_folder: Path, *, is_json: bool) -> int:
    """Refresh the status each second until Ctrl-C; return the exit code of the last one."""
    with catch_signals() as received, _open_screen(run_folder, is_json=is_json) as show:
        while True:
            status = read_run_status(run_folder)
            show(status)
            if wait_for_signal(received, _REFRESH_S):
                return find_exit_code(status)


@contextmanager
def _open_screen(run_folder: Path, *, is_json: bool) -> Iterator[Callable[[RunStatus], object]]:
    """Yield a function that shows a status in place of the one before; below it without a terminal."""
    from rich.live import Live

    console = Console(highlight=False)
    if is_json or not console.is_terminal:
        yield lambda status: _print(status, run_folder, is_json=is_json)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda status: live.update(_render(status, run_folder, console.width), refresh=True)


def _print(status: RunStatus, run_folder: Path, *, is_json: bool) -> None:
    if is_json:
        print(json.dumps(build_json(status)), flush=True)
    else:
        print_screen(lambda width: _render(status, run_folder, width))


def _render(status: RunStatus, run_folder: Path, width: int) -> RenderableType:
    screen = render_status(build_status_screen(status), width)
    return screen if status.ranks else Group(screen, Text(sanitize_lines(explain_no_pulse(run_folder))))
