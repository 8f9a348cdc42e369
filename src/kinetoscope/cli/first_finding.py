"""cli: ``kinetoscope summary --first``, for the line at the end of a run: the first finding only, beside training.

With ``--report FILE`` it also writes the report on the run.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kinetoscope.analysis.analyze import analyze
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.table.load import names_in
from kinetoscope.writing.side_process import end_when_left, give_way

MOST_BYTES = 200_000_000
"""Larger traces are not looked at, since that would take long."""

MOST_BYTES_OF_REPORT = 1_000_000_000
"""The same where a report is wanted."""

_COMPRESSION = 10
_COMPRESSED = (".gz", ".zst")


def print_first(inputs: Sequence[str], report: Path | None = None) -> int:
    """Prints the first finding on traces that is not of low confidence, as JSON; null if there is none. Then writes
    the ``report``, and prints its ranks. Returns 1 if the traces are too large."""
    end_when_left()
    give_way()
    os.environ["POLARS_MAX_THREADS"] = "1"  # polars reads it when it is imported
    names = [name for given in inputs for name in names_in(given)]
    if sum(map(_num_bytes, names)) > (MOST_BYTES if report is None else MOST_BYTES_OF_REPORT):
        return 1
    found = analyze(names, cache=False)
    first = next((finding for finding in found.findings if finding.confidence != "low"), None)
    _say(first and {"title": first.title, "saving_ns_per_step": first.saving_ns_per_step})
    if report is not None:
        _write_report(found, names, report)
        _say({"num_ranks": len(found.run["ranks"]), "world_size": found.run["world_size"]})
    return 0


def _write_report(found: RunReport, names: Sequence[str], output: Path) -> None:
    from kinetoscope import __version__
    from kinetoscope.cli.paths import require_free
    from kinetoscope.pages.page import render_page
    from kinetoscope.report.page.build import Recorded, build_page
    from kinetoscope.report.page.rank_traces import RankTraces
    from kinetoscope.writing.atomic_file import atomic_file

    require_free([output], force=False)
    page = build_page(found, __version__, recorded=Recorded(windows=RankTraces(found, names, cache=False)))
    content = render_page(page).encode()
    with atomic_file(output) as file:
        file.write(content)


def _say(line: Any) -> None:
    print(json.dumps(line), flush=True)


def _num_bytes(name: str) -> int:
    """How large a trace is, or would be without its compression."""
    return os.path.getsize(name) * (_COMPRESSION if name.endswith(_COMPRESSED) else 1)
