"""The arguments that several verbs have: each with one name, one form and one explanation."""

import argparse
import os

from kinetoscope.cli.numbers import count_of_one_or_more, ranks, seconds_above_0, whole_number

PATH = "the folder of a run, a folder of traces, trace files, or globs"


def add_paths(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Adds one ``PATH`` or several."""
    parser.add_argument("inputs", metavar="PATH", nargs="+", help=PATH + more)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the ``PATH`` of one run, for verbs that work on a whole run."""
    parser.add_argument("run_folder", metavar="PATH", help="the folder of the run, or one of its traces")


def add_output(parser: argparse.ArgumentParser, what: str, *other_names: str) -> None:
    """Adds ``-o``."""
    parser.add_argument("-o", "--output", *other_names, metavar="OUTPUT", help=what)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    parser.add_argument("--json", action="store_true", help="print everything as JSON, for programs")


def add_ranks(parser: argparse.ArgumentParser, *other_names: str) -> None:
    """Adds ``--ranks``."""
    parser.add_argument("--ranks", *other_names, metavar="LIST", type=ranks, help="only these ranks, as in 0,4-7")


def add_last(parser: "argparse.ArgumentParser | argparse._MutuallyExclusiveGroup") -> None:
    """Adds ``--last``."""
    parser.add_argument(
        "--last", metavar="SECONDS", type=seconds_above_0, help="only the last seconds that were recorded"
    )


def add_attempt(parser: argparse.ArgumentParser) -> None:
    """Adds ``--attempt``."""
    parser.add_argument(
        "--attempt",
        metavar="N",
        type=whole_number,
        help="of a run that was restarted, this attempt; 0 is the first one (default: the last)",
    )


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    """Adds ``--no-cache``."""
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write what was kept of traces")


def add_force(parser: argparse.ArgumentParser) -> None:
    """Adds ``--force``."""
    parser.add_argument("--force", action="store_true", help="replace an output that Kinetoscope did not write")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Adds ``--jobs``."""
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=count_of_one_or_more,
        default=os.cpu_count(),
        help="files at a time (default: all cores)",
    )
