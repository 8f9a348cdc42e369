"""cli: ``kinetoscope summary --first``, for the line at the end of a run: the first finding only, beside training."""

import json
import os
from collections.abc import Sequence

from kinetoscope.analysis.analyze import analyze
from kinetoscope.table.load import names_in
from kinetoscope.writing.side_process import end_when_left, give_way

MOST_BYTES = 200_000_000
"""Larger traces are not looked at, since that would take long."""

_COMPRESSION = 10
_COMPRESSED = (".gz", ".zst")


def print_first(inputs: Sequence[str]) -> int:
    """Prints the first finding on traces that is not of low confidence, as JSON; null if there is none. Returns 1 if
    the traces are too large."""
    end_when_left()
    give_way()
    os.environ["POLARS_MAX_THREADS"] = "1"  # polars reads it when it is imported
    names = [name for given in inputs for name in names_in(given)]
    if sum(map(_num_bytes, names)) > MOST_BYTES:
        return 1
    findings = analyze(names, cache=False).findings
    first = next((finding for finding in findings if finding.confidence != "low"), None)
    print(json.dumps(first and {"title": first.title, "saving_ns_per_step": first.saving_ns_per_step}))
    return 0


def _num_bytes(name: str) -> int:
    """How large a trace is, or would be without its compression."""
    return os.path.getsize(name) * (_COMPRESSION if name.endswith(_COMPRESSED) else 1)
