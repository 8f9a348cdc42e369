"""cli: ``kinetoscope check``. File names flow in; what is wrong with the traces, and repaired ones, flow out."""

import argparse
import dataclasses
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kinetoscope.cli.inputs import trace_inputs
from kinetoscope.errors import SettingsError
from kinetoscope.merge.check import FileCheck, check_traces, repair_trace

_EXAMPLES = """\
examples:
  kinetoscope check trace.json
      is it whole, do its spans nest, has it a clock, are its flows its own?
  kinetoscope check logs --json
      all traces in a folder, for a script; also which ranks have no file
  kinetoscope check broken.json --repair fixed.json
      writes what can be read as a trace that every viewer opens

The exit code is 0 if nothing is wrong, 1 if something is (or was, and is repaired now), 2 for wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``check``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="trace files, folders of them, globs, or -")
    parser.add_argument("--repair", metavar="OUT", help="write a valid trace to OUT; of several files, to that folder")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count(), help="files at a time (all cores)")
    parser.add_argument("--json", action="store_true", help="say as JSON what was found")


def run(arguments: argparse.Namespace) -> int:
    """Checks, and repairs if asked; returns the exit code."""
    with trace_inputs(arguments.inputs) as files:
        with ThreadPoolExecutor(max(1, arguments.jobs)) as executor:
            checks = check_traces(files, executor)
        repaired = _repair(files, Path(arguments.repair)) if arguments.repair else {}
    _tell(checks, repaired, as_json=arguments.json)
    return int(any(check.findings for check in checks))


def _repair(files: list[Path], output: Path) -> dict[str, list[str]]:
    """What was done to each file, by the name of the repaired one."""
    if len(files) > 1 and output.is_file():
        raise SettingsError(f"{len(files)} files do not fit into {output}. Pass a folder to --repair.")
    targets = [output / file.name for file in files] if len(files) > 1 or output.is_dir() else [output]
    return {str(target): repair_trace(file, target) for file, target in zip(files, targets, strict=True)}


def _tell(checks: list[FileCheck], repaired: dict[str, list[str]], *, as_json: bool) -> None:
    if as_json:
        files = [dataclasses.asdict(check) for check in checks]
        json.dump({"files": files, "repaired": repaired}, sys.stdout)
        print()
        return
    for check in checks:
        print(f"{check.path}: {'nothing wrong' if not check.findings else 'not as it should be'}"
              f" ({check.num_events:,} events).")  # fmt: skip
        for finding in check.findings:
            print(f"  {finding.kind}: {finding.text}")
    for target, done in repaired.items():
        print(f"Repaired: {target}")
        for note in done:
            print(f"  {note}")
