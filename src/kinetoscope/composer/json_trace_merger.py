"""Merging of traces into a bare list of events, under Composer's module path, and as a command.

python -m kinetoscope.composer.json_trace_merger -o merged.json rank0.json rank1.json
"""

import argparse
import os
import sys
from collections.abc import Sequence

from kinetoscope.errors import KinetoscopeError
from kinetoscope.merge import merge_traces as merging

__all__ = ["merge_traces"]


def merge_traces(output_file: str | os.PathLike[str], *trace_files: str | os.PathLike[str]) -> None:
    """Merge traces of any number of ranks into ``output_file``, which may be one of them.

    The pid of every event is its rank, and all are on one clock. Raises as `kinetoscope.merge_traces` does.
    """
    merging.merge_traces(output_file, *trace_files, as_list=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description="Merges traces of many ranks into one.")
    parser.add_argument("input_files", nargs="+", metavar="INPUT", help="trace files")
    parser.add_argument("-o", "--output_file", required=True, metavar="OUTPUT", help="the file to write")
    options = parser.parse_args(arguments)
    try:
        merge_traces(options.output_file, *options.input_files)
    except (KinetoscopeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
