"""The command ``kinetoscope check``: validate traces, and repair them."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from kinetoscope.cli.options import add_attempt, add_force, add_jobs, add_json, add_output, add_paths
from kinetoscope.cli.paths import open_trace_inputs, require_distinct, require_replaceable
from kinetoscope.cli.progress import Progress, run_parallel
from kinetoscope.core.paths.file_kinds import is_folder, is_regular_file
from kinetoscope.core.text.wording import format_count, sanitize_lines
from kinetoscope.errors import SettingsError, TraceFileError
from kinetoscope.merge.check import (
    Fault,
    FileCheck,
    RepairedTrace,
    check_trace,
    compare_checks,
    repair_trace,
    unreadable,
)
from kinetoscope.merge.trace_output import STDOUT

_EXAMPLES = """\
examples:
  kinetoscope check trace.json
      check that a trace is complete, that spans nest, and flows and clock are valid
  kinetoscope check runs/digits --json
      check all traces of a run, as JSON; ranks without a file are listed
  kinetoscope check broken.json -o fixed.json
      write what can be read as a trace that every viewer opens

Exit codes: 0 no faults, 1 faults found, repaired or not, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``check``."""
    parser.epilog = _EXAMPLES
    add_paths(parser, "; - is stdin")
    add_output(parser, "repair: write a valid trace to this file, or to this folder; - is stdout", "--repair")
    add_force(parser)
    add_attempt(parser)
    add_jobs(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check traces, and repair them with ``-o``; return 1 if there are faults, or were before the repair."""
    with open_trace_inputs(arguments.inputs, attempt=arguments.attempt) as files:
        if arguments.output:
            targets = _choose_targets(files, Path(arguments.output))
            require_replaceable(targets, force=arguments.force)
            checks, repaired = _repair(files, targets, arguments.jobs)
        else:
            checks, repaired = run_parallel("checking", check_trace, files, arguments.jobs), None
    together = [*compare_checks(checks), *_compare_clocks(checks)]
    printed = files.shown((_format_json if arguments.json else _format_text)(checks, together, repaired))
    print(
        printed if arguments.json else sanitize_lines(printed),
        file=sys.stderr if arguments.output == str(STDOUT) else sys.stdout,
    )
    return int(bool(together) or any(check.findings for check in checks))


def _compare_clocks(checks: list[FileCheck]) -> list[Fault]:
    """Return faults of ranks whose clocks differ, by the ends of their collectives."""
    names = [check.path for check in checks if check.ranks and all(found.kind != "clock" for found in check.findings)]
    if len({rank for check in checks if check.path in names for rank in check.ranks}) < 2:
        return []
    # here, since importing polars takes longer than checking a small file
    from kinetoscope.analysis.ranks.clock_alignment import build_clock_shift_notes, estimate_clock_shifts

    more = "kinetoscope summary corrects for that; a merged trace does not."
    return [Fault("clock", f"{note} {more}") for note in build_clock_shift_notes(estimate_clock_shifts(names))]


def _repair(files: list[str], targets: list[Path], jobs: int) -> tuple[list[FileCheck], list[RepairedTrace]]:
    """Repair the files that can be read; return the check of each file, and the repaired traces."""
    pairs = list(zip(files, targets, strict=True))
    results = run_parallel("repairing", _repair_one, pairs, jobs, lambda _, result: getattr(result, "output", None))
    repaired = [result for result in results if isinstance(result, RepairedTrace)]
    return [result.check if isinstance(result, RepairedTrace) else result for result in results], repaired


def _repair_one(pair: tuple[str, Path], on_progress: Progress) -> RepairedTrace | FileCheck:
    """Return the repaired trace, or the check of a file that cannot be read."""
    file, target = pair
    try:
        return repair_trace(file, target, on_progress)
    except TraceFileError as error:
        return unreadable(file, error)


def _choose_targets(files: list[str], output: Path) -> list[Path]:
    """Return the output file of each input."""
    if len(files) > 1 and (is_regular_file(output) or output == STDOUT):
        raise SettingsError(f"{len(files)} inputs, but one output file: {output}. Pass a folder to -o.")
    targets = [output / Path(file).name for file in files] if len(files) > 1 or is_folder(output) else [output]
    require_distinct(targets)
    return targets


def _format_json(checks: list[FileCheck], together: list[Fault], repaired: list[RepairedTrace] | None) -> str:
    files = [dataclasses.asdict(check) for check in checks]
    found = {"files": files, "together": [dataclasses.asdict(fault) for fault in together]}
    return json.dumps(found | {"repaired": {str(repair.output): repair.repairs for repair in repaired or ()}})


def _format_text(checks: list[FileCheck], together: list[Fault], repaired: list[RepairedTrace] | None) -> str:
    lines: list[str] = []
    repairs = {repair.check.path: repair for repair in repaired or ()}
    for check in checks:
        verdict = "faults found" if check.findings else "no faults"
        lines.append(f"{check.path}: {verdict} ({format_count(check.num_events, 'event')}).")
        lines += [f"  {fault.kind}: {fault.text}" for fault in check.findings]
        if repaired is not None:
            lines.append("  " + _describe_repair(repairs.get(check.path)))
    if together:
        lines += ["All files together:", *(f"  {fault.kind}: {fault.text}" for fault in together)]
    return "\n".join(lines)


def _describe_repair(repaired: RepairedTrace | None) -> str:
    """Return a line on the repair of one file."""
    if repaired is None:
        return "Not repaired: it cannot be read."
    left = ", ".join(dict.fromkeys(fault.kind for fault in repaired.unrepaired))
    verb = "Repaired" if repaired.repairs else "Rewritten without a change"
    return f"{verb}: {repaired.output}" + (f" (not repaired: {left})" if left else "")
