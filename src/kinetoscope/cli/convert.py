"""``kinetoscope convert``: writes traces in another format."""

import argparse
import json
import os
import sys
from pathlib import Path

from kinetoscope.cli.numbers import count_of_one_or_more
from kinetoscope.cli.paths import TraceInputs, add_force, require_free, trace_inputs
from kinetoscope.cli.progress import Progress, work_on_each
from kinetoscope.errors import SettingsError
from kinetoscope.merge.convert import convert_trace
from kinetoscope.merge.merge_traces import ByteProgress
from kinetoscope.merge.trace_output import is_perfetto
from kinetoscope.training.wording import printable_lines, sized
from kinetoscope.writing.atomic_file import temporary_folder

_PARQUET = ".parquet"
_EXAMPLES = """\
examples:
  kinetoscope convert trace.json trace.json.gz
      compressed; the text stays the same, and the same command converts it back
  kinetoscope convert trace.json.gz trace.pftrace
      Perfetto's own format: a third of the size, and faster to open
  kinetoscope convert trace.json trace.parquet
      columns for polars, pandas or DuckDB, a thirtieth of the size; converting back restores every event
  kinetoscope convert logs/*.pt.trace.json packed --to .json.zst
      many files, several at a time, into a folder
  kinetoscope convert - trace.pftrace < trace.json
      from a pipe; - as the output writes JSON to one
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``convert``."""
    parser.epilog = _EXAMPLES
    parser.usage = (
        "kinetoscope convert INPUT OUTPUT [--force] [--json]\n"
        "       kinetoscope convert INPUT... FOLDER --to SUFFIX [--jobs N] [--force] [--json]"
    )
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="trace files, folders of them, globs, or -")
    parser.add_argument("output", metavar="OUTPUT", help="the file to write; its suffix gives the format; - is stdout")
    parser.add_argument("--to", metavar="SUFFIX", help="OUTPUT is a folder; files in it get this suffix")
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=count_of_one_or_more,
        default=os.cpu_count(),
        help="files at a time (default: all cores)",
    )
    add_force(parser)
    parser.add_argument("--json", action="store_true", help="print as JSON what was written")


def run(arguments: argparse.Namespace) -> int:
    """Converts; returns the exit code."""
    with trace_inputs(arguments.inputs) as files:
        pairs = _pairs(files, arguments)
        require_free((target for _, target in pairs), force=arguments.force)
        notes = work_on_each("converting", _convert_one, pairs, arguments.jobs, lambda pair, _: pair[1])
        converted = [(source, target, said) for (source, target), said in zip(pairs, notes, strict=True)]
        _print_result(converted, files, arguments)
    return 0


def _pairs(files: list[str], arguments: argparse.Namespace) -> list[tuple[str, Path]]:
    output = Path(arguments.output)
    if arguments.to is None and len(files) > 1:
        raise SettingsError(f"{len(files)} files do not fit into {output}. Pass --to SUFFIX if it is a folder.")
    if arguments.to is None:
        return [(files[0], output)]
    return [(file, output / (_stem(file) + arguments.to)) for file in files]


def _stem(file: str) -> str:
    return Path(file).name.removesuffix(".gz").removesuffix(".zst").removesuffix(".json").removesuffix(_PARQUET)


def _convert_one(pair: tuple[str, Path], on_progress: Progress) -> list[str]:
    source, target = pair
    if _PARQUET not in (Path(source).suffix, target.suffix):
        return convert_trace(source, target, on_progress)
    from kinetoscope.table.convert import convert_parquet  # needs polars

    on_bytes = ByteProgress([source], on_progress, num_passes=1).advance
    if not is_perfetto(target):
        return convert_parquet(source, target, on_bytes)
    with temporary_folder() as folder:
        between = folder / (_stem(source) + ".json")
        return [*convert_parquet(source, between, on_bytes), *convert_trace(between, target, on_progress)]


def _print_result(
    converted: list[tuple[str, Path, list[str]]], files: TraceInputs, arguments: argparse.Namespace
) -> None:
    stream = sys.stderr if arguments.output == "-" else sys.stdout
    if arguments.json:
        rows = [
            {"input": files.shown(source), "output": str(target), "notes": notes} for source, target, notes in converted
        ]
        print(json.dumps(rows), file=stream)
        return
    for source, target, notes in converted:
        size = f" ({sized(target.stat().st_size)})" if target.is_file() else ""
        print(printable_lines(f"Converted {files.shown(source)} to {target}{size}."), file=stream)
        for note in notes:
            print(f"  {printable_lines(note)}", file=stream)
