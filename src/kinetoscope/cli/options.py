"""Arguments that several commands share."""

import argparse
import os

from kinetoscope.cli.arg_types import parse_positive_int, parse_positive_seconds, parse_ranks, parse_whole_number

PATH = "run folder, folder of traces, trace files or globs"


def add_paths(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add one or more ``PATH`` arguments."""
    parser.add_argument("inputs", metavar="PATH", nargs="+", help=PATH + more)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the ``PATH`` of one run, for commands that need a whole run."""
    parser.add_argument("run_folder", metavar="PATH", help="run folder, or one of its traces")


def add_output(parser: argparse.ArgumentParser, what: str, *other_names: str) -> None:
    """Add ``-o``."""
    parser.add_argument("-o", "--output", *other_names, metavar="OUTPUT", help=what)


def add_num_steps(parser: argparse.ArgumentParser, default: int | None, more: str = "") -> None:
    """Add ``-n``."""
    parser.add_argument(
        "-n",
        "--num-steps",
        metavar="N",
        type=parse_positive_int,
        default=default,
        help=f"record N steps (default: 10{more})",
    )


def add_details(parser: argparse.ArgumentParser) -> None:
    """Add ``--details``."""
    parser.add_argument("--details", action="store_true", help="print all details, not only the most important ones")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_ranks(parser: argparse.ArgumentParser, *other_names: str) -> None:
    """Add ``--ranks``."""
    parser.add_argument(
        "-r", "--ranks", *other_names, metavar="LIST", type=parse_ranks, help="select ranks, as in 0,4-7"
    )


def add_last(parser: "argparse.ArgumentParser | argparse._MutuallyExclusiveGroup") -> None:
    """Add ``--last``."""
    parser.add_argument(
        "--last", metavar="SECONDS", type=parse_positive_seconds, help="select the last seconds of the recording"
    )


def add_attempt(parser: argparse.ArgumentParser) -> None:
    """Add ``--attempt``."""
    parser.add_argument(
        "--attempt",
        metavar="N",
        type=parse_whole_number,
        help="select a restart attempt; 0 is the first (default: the last)",
    )


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-cache``."""
    parser.add_argument("--no-cache", action="store_true", help="do not use the cache")


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``."""
    parser.add_argument("--force", action="store_true", help="replace a file that Kinetoscope did not write")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add ``--jobs``."""
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=parse_positive_int,
        default=os.cpu_count(),
        help="process N files in parallel (default: number of cores)",
    )
