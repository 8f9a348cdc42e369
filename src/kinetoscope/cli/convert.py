"""The command ``kinetoscope convert``: traces in another format."""

import argparse
import json
import sys
from pathlib import Path

from kinetoscope.cli.options import PATH, add_attempt, add_force, add_jobs, add_json, add_output
from kinetoscope.cli.paths import TraceInputs, open_trace_inputs, require_distinct, require_replaceable
from kinetoscope.cli.progress import Progress, run_parallel
from kinetoscope.core.paths.atomic_file import temporary_folder
from kinetoscope.core.text.wording import format_file_size, sanitize_lines
from kinetoscope.errors import SettingsError
from kinetoscope.merge.convert_trace import convert_trace
from kinetoscope.merge.merge_traces import ByteProgress
from kinetoscope.merge.trace_output import is_perfetto

_PARQUET = ".parquet"
_EXAMPLES = """\
examples:
  kinetoscope convert trace.json -o trace.json.gz
      compress; the JSON stays the same, and the same command decompresses it
  kinetoscope convert trace.json.gz -o trace.pftrace
      write Perfetto's own format: a third of the size, and faster to open
  kinetoscope convert trace.json -o trace.parquet
      write columns for polars, pandas or DuckDB, at a thirtieth of the size
  kinetoscope convert runs/digits -o packed --suffix .json.zst
      convert many files in parallel, into a folder
  kinetoscope convert - -o trace.pftrace < trace.json
      read from a pipe; -o - writes JSON to one
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``convert``."""
    parser.epilog = _EXAMPLES
    parser.usage = (
        "kinetoscope convert PATH -o OUTPUT [--attempt N] [--force] [--json]\n"
        "       kinetoscope convert PATH... -o FOLDER --suffix SUFFIX [--attempt N]\n"
        "                           [--jobs N] [--force] [--json]"
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help=PATH + "; - is stdin")
    add_output(parser, "output file; its suffix selects the format; - is stdout")
    parser.add_argument(
        "--suffix", "--to", metavar="SUFFIX", dest="to", help="write into the folder OUTPUT, with this suffix"
    )
    add_attempt(parser)
    add_jobs(parser)
    add_force(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Convert traces; return the exit code."""
    if arguments.output is None:
        raise SettingsError("Missing output file. Pass -o OUTPUT.")
    with open_trace_inputs(arguments.paths, attempt=arguments.attempt) as files:
        pairs = _pair_with_outputs(files, arguments)
        require_replaceable((target for _, target in pairs), force=arguments.force)
        notes = run_parallel("converting", _convert_one, pairs, arguments.jobs, lambda pair, _: pair[1])
        converted = [(source, target, file_notes) for (source, target), file_notes in zip(pairs, notes, strict=True)]
        _print_result(converted, files, arguments)
    return 0


def _pair_with_outputs(files: list[str], arguments: argparse.Namespace) -> list[tuple[str, Path]]:
    """Return pairs of input and output file."""
    output = Path(arguments.output)
    if arguments.to is None and len(files) > 1:
        raise SettingsError(
            f"{len(files)} inputs, but one output file: {output}. Pass --suffix SUFFIX to write into a folder."
        )
    if arguments.to is None:
        return [(files[0], output)]
    pairs = [(file, output / (_strip_suffixes(file) + arguments.to)) for file in files]
    require_distinct(target for _, target in pairs)
    return pairs


def _strip_suffixes(file: str) -> str:
    """Return a file name without the suffixes of traces."""
    return Path(file).name.removesuffix(".gz").removesuffix(".zst").removesuffix(".json").removesuffix(_PARQUET)


def _convert_one(pair: tuple[str, Path], on_progress: Progress) -> list[str]:
    """Convert one file and return notes on the conversion."""
    source, target = pair
    if _PARQUET not in (Path(source).suffix, target.suffix):
        return convert_trace(source, target, on_progress)
    from kinetoscope.frames.convert_parquet import convert_parquet  # needs polars

    on_bytes = ByteProgress([source], on_progress, num_passes=1).advance
    if not is_perfetto(target):
        return convert_parquet(source, target, on_bytes)
    with temporary_folder() as folder:
        between = folder / (_strip_suffixes(source) + ".json")
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
        size = f" ({format_file_size(target.stat().st_size)})" if target.is_file() else ""
        print(sanitize_lines(f"Converted {files.shown(source)} to {target}{size}."), file=stream)
        for note in notes:
            print(f"  {sanitize_lines(note)}", file=stream)
