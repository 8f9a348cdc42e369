"""cli: ``kinetoscope summary --first``, for the end of a run: the first finding only, beside training.

The report is kept in the user's cache, and so is what a list of runs says of the run.

With ``--report FILE`` it also writes the report on the run.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kinetoscope.analysis.analyze import report_to_keep
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.cli.run_rows import find_run, let_others_go_first, num_bytes, row_of
from kinetoscope.formats.run_row import write_row
from kinetoscope.serving.runs import run_of_traces
from kinetoscope.table.load import names_in

MOST_BYTES = 200_000_000
"""Larger traces are not looked at, since that would take long."""

MOST_BYTES_OF_REPORT = 1_000_000_000
"""The same where a report is wanted."""

_MOST_ENTRIES = 10_000  # in the folder of the run, which may be any: a larger one is no reason to wait


def print_first(inputs: Sequence[str], report: Path | None = None) -> int:
    """Prints the first finding on traces that is not of low confidence, as JSON; null if there is none. Then writes
    the ``report``, and prints its ranks and all findings in words. Returns 1 if the traces are too large."""
    let_others_go_first()
    names = [name for given in inputs for name in names_in(given)]
    if num_bytes(names) > (MOST_BYTES if report is None else MOST_BYTES_OF_REPORT):
        return 1
    run_folder = Path(run_of_traces(os.path.abspath(inputs[0])))
    run = find_run(run_folder, most_entries=_MOST_ENTRIES)
    found = report_to_keep(names, run_folder)
    row = row_of(found, run.made_from if run is not None else "")
    _say({"title": row.finding, "saving_ns_per_step": row.saving_ns} if row.finding else None)
    if run is not None:
        write_row(run_folder, row)
    if report is not None:
        _write_report(found, names, report)
        run_facts = {"num_ranks": len(found.run["ranks"]), "world_size": found.run["world_size"]}
        _say(run_facts | {"findings": list(_findings_in_words(found))})
    return 0


def _write_report(found: RunReport, names: Sequence[str], output: Path) -> None:
    from kinetoscope import __version__
    from kinetoscope.cli.paths import require_free
    from kinetoscope.pages.html_file import render_page
    from kinetoscope.report.sections.build import Recorded, build_page
    from kinetoscope.report.sections.rank_traces import RankTraces
    from kinetoscope.writing.atomic_file import atomic_file

    require_free([output], force=False)
    page = build_page(found, __version__, recorded=Recorded(windows=RankTraces(found, names, cache=False)))
    content = render_page(page).encode()
    with atomic_file(output) as file:
        file.write(content)


def _findings_in_words(found: RunReport) -> Iterator[str]:
    from kinetoscope.report.sentences import below_title

    for finding in found.findings:
        yield "\n".join([finding.title, *below_title(finding, found.run)])


def _say(line: Any) -> None:
    print(json.dumps(line), flush=True)
