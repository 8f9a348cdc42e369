"""cli: ``kinetoscope merge``. File names flow in; one merged trace, and a line about it, flow out."""

import argparse
import glob
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kinetoscope.errors import MergeError
from kinetoscope.formats.upload_queue import delete_when_uploaded
from kinetoscope.merge.manifest_merge import merge_manifest
from kinetoscope.merge.merge_traces import MergeReport, Progress, merge_traces

_NICENESS = 10
_SUFFIXES = (".json", ".json.gz")
_EXAMPLES = """\
examples:
  kinetoscope merge merged.json rank0.json rank1.json
      two ranks, each a process in the merged trace
  kinetoscope merge merged.json.gz runs/digits/traces
      all traces in a folder; the name makes it gzip
  kinetoscope merge merged.json 'logs/*.pt.trace.json' --align-on 'ProfilerStep#100'
      traces whose clocks cannot be compared, aligned on a span that all of them have
  kinetoscope merge --from-manifest runs/digits/traces runs/digits/traces/merged_trace.json --wait 30
      what the ranks of this node have finished, waiting up to 30 seconds for those still writing

The merged trace opens in https://ui.perfetto.dev and in chrome://tracing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``merge``."""
    parser.epilog = _EXAMPLES
    parser.usage = (
        "kinetoscope merge OUTPUT INPUT... [--align-on SPAN] [--nice]\n"
        "       kinetoscope merge --from-manifest FOLDER OUTPUT [--wait S] [--node-rank N]"
    )
    parser.add_argument("output", metavar="OUTPUT", help="the file to write; .gz packs it; it may be one of the inputs")
    parser.add_argument("inputs", metavar="INPUT", nargs="*", help="trace files, folders of them, or globs")
    parser.add_argument("--align-on", metavar="SPAN", help="a span that all files have, where clocks are missing")
    parser.add_argument("--from-manifest", metavar="FOLDER", help="merge what the ranks list as finished in FOLDER")
    parser.add_argument("--wait", metavar="S", type=float, default=0.0, help="seconds to wait for ranks still writing")
    parser.add_argument("--cycles", metavar="N", type=int, help="with --wait: not for ranks that have saved N cycles")
    parser.add_argument("--node-rank", metavar="N", type=int, default=0, help="the node whose ranks are merged")
    parser.add_argument("--run-folder", metavar="F", type=Path, help="the run's folder, if not above FOLDER")
    parser.add_argument("--attempt", metavar="NAME", help="with --from-manifest: only ranks of this attempt")
    parser.add_argument("--as-list", action="store_true", help="write a bare list of events, as Composer does")
    parser.add_argument(
        "--nice",
        action=argparse.BooleanOptionalAction,
        help="leave the processor to others, such as training (the default with --from-manifest)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Merges; returns the exit code."""
    if bool(arguments.inputs) == bool(arguments.from_manifest):
        print("kinetoscope merge: pass either INPUT files or --from-manifest FOLDER. See --help.", file=sys.stderr)
        return 2
    if arguments.nice or (arguments.nice is None and arguments.from_manifest):
        os.nice(_NICENESS)
    with _progress_bar() as on_progress:
        report = _merge(arguments, on_progress)
    print(_summary(report) if report else f"Nothing to merge yet: no finished traces in {arguments.from_manifest}.")
    return 0


def _merge(arguments: argparse.Namespace, on_progress: Progress | None) -> MergeReport | None:
    if arguments.from_manifest:
        return merge_manifest(
            arguments.from_manifest,
            arguments.output,
            arguments.wait,
            node_rank=arguments.node_rank,
            attempt=arguments.attempt,
            align_on=arguments.align_on,
            on_progress=on_progress,
            as_list=arguments.as_list,
            num_cycles=arguments.cycles,
            delete=partial(delete_when_uploaded, arguments.run_folder or Path(arguments.from_manifest).parent),
        )
    files = _expand(arguments.inputs, Path(arguments.output))
    options = {"align_on": arguments.align_on, "on_progress": on_progress, "as_list": arguments.as_list}
    return merge_traces(arguments.output, *files, **options)


def _summary(report: MergeReport) -> str:
    what = f"{report.num_files} files of {len(report.ranks)} ranks, {report.num_events:,} events"
    lines = [f"Merged {what} into {report.output} ({report.size_bytes / 1e6:.1f} MB)."]
    return "\n".join(lines + [f"  {note}" for note in report.notes])


def _expand(inputs: list[str], output: Path) -> list[Path]:
    """The files that ``inputs`` name, each once; what only a folder or a glob names may not be a merged trace."""
    files: dict[Path, None] = {}
    for name in inputs:
        files |= dict.fromkeys(_expand_one(name, output))
    return list(files)


def _expand_one(name: str, output: Path) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    found = sorted(path.iterdir()) if path.is_dir() else sorted(map(Path, glob.glob(name, recursive=True)))
    traces = [file for file in found if file.name.endswith(_SUFFIXES) and not _is_merged(file, output)]
    if not traces:
        raise MergeError(f"Nothing to merge: {name} names no trace file (.json or .json.gz). Check the path.")
    return traces


def _is_merged(file: Path, output: Path) -> bool:
    return file.name.startswith(("merged_trace", ".")) or file.absolute() == output.absolute()


@contextmanager
def _progress_bar() -> Iterator[Progress | None]:
    """A callback that draws a bar on stderr; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("merging", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
