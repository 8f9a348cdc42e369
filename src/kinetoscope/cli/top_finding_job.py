"""Job at the end of a run: find its top finding, and write its report if one is wanted.

The report and the row of the list of runs are kept in the user's cache.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kinetoscope.analysis.analyze import analyze_into_cache
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.cli.run_rows_job import build_row, count_bytes, find_run, run_at_low_priority
from kinetoscope.core.background.jobs import run_job
from kinetoscope.errors import KinetoscopeError
from kinetoscope.formats.run_row import write_row
from kinetoscope.frames.load import list_traces
from kinetoscope.server.run_search import find_run_of_traces

MAX_BYTES = 200_000_000
"""Larger traces are not analysed, since that would take long."""

MAX_BYTES_WITH_REPORT = 1_000_000_000
"""The same where a report is wanted."""

_MAX_ENTRIES = 10_000  # the run folder may be any folder; listing a larger one would take too long


def print_top_finding(folder: str, report: str | None) -> int:
    """Print the top finding above low confidence on the traces in ``folder`` as JSON; null without one.

    Then write the ``report`` if wanted, and print its ranks and findings as JSON. Raises KinetoscopeError if the traces
    are too large.
    """
    run_at_low_priority()
    names = list_traces(folder)
    if count_bytes(names) > (MAX_BYTES if report is None else MAX_BYTES_WITH_REPORT):
        raise KinetoscopeError("the traces are too large")
    run_folder = Path(find_run_of_traces(os.path.abspath(folder)))
    run = find_run(run_folder, max_entries=_MAX_ENTRIES)
    found = analyze_into_cache(names, run_folder)
    row = build_row(found, run.content_hash if run is not None else "")
    _print_json({"title": row.finding, "saving": row.saving} if row.finding else None)
    if run is not None:
        write_row(run_folder, row)
    if report is not None:
        _write_report(found, names, Path(report))
        run_facts = {"num_ranks": len(found.run["ranks"]), "world_size": found.run["world_size"]}
        _print_json(run_facts | {"findings": list(_format_findings(found))})
    return 0


def _write_report(found: RunReport, names: Sequence[str], output: Path) -> None:
    from kinetoscope.cli.paths import require_replaceable
    from kinetoscope.cli.report import write_page
    from kinetoscope.report.page.build import RecordedWindows
    from kinetoscope.report.page.rank_traces import RankTraces

    require_replaceable([output], force=False)
    write_page(output, found, RecordedWindows(windows=RankTraces(found, names, cache=False)))


def _format_findings(found: RunReport) -> Iterator[str]:
    """Yield each finding as lines of text."""
    from kinetoscope.report.descriptions import describe_finding, find_public_folder

    for finding in found.findings:
        yield "\n".join([finding.title, *describe_finding(finding, found.run, find_public_folder(found))])


def _print_json(line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    run_job(print_top_finding)
