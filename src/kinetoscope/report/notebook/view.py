"""Report page in a notebook, in an isolated frame of limited size."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

import kinetoscope
from kinetoscope.analysis.analyze import analyze
from kinetoscope.analysis.compare.comparison import Comparison
from kinetoscope.analysis.run_report import TABLES, RunReport
from kinetoscope.core.text.templates import load_macros
from kinetoscope.core.text.wording import format_file_size
from kinetoscope.errors import SettingsError
from kinetoscope.pages.html_file import render_page
from kinetoscope.pages.page_data import CallTable, PageData
from kinetoscope.report.comparison import describe_comparison
from kinetoscope.report.labels import DEVICE_PART_LABELS, HOST_PART_LABELS
from kinetoscope.report.page.build import build_page
from kinetoscope.report.page.compared_sides import build_compared_sides
from kinetoscope.report.page.privacy import remove_personal_names

MAX_FRAME_BYTES = 1_000_000
"""Limit of a frame: a notebook stores the output of its cells in its file."""


class NotebookPage:
    """Result of `view`: a notebook shows it as the page, other programs as a line of text."""

    def __init__(self, title: str, frame: str) -> None:
        self.title = title
        self._frame = frame

    def __repr__(self) -> str:
        return (
            f"<The page of {self.title}, {format_file_size(len(self._frame.encode()))}. A notebook shows it as the "
            "last line of a cell. Elsewhere, `kinetoscope report PATH --open` shows it in the browser.>"
        )

    def _repr_html_(self) -> str:
        return self._frame


def view(source: "RunReport | Comparison | str | os.PathLike[str]", *, height: int = 720) -> NotebookPage:
    """Show a report in a notebook: the page that ``kinetoscope report`` writes, without its timeline.

    The page is in a frame that can neither read the notebook nor load anything. It is smaller than 1 MB: rows of larger
    reports are left out, with a note. Outside a notebook nothing is shown; the result's text names an alternative.

        kinetoscope.view(kinetoscope.analyze("runs/digits"))

    Args:
        source: the result of `kinetoscope.analyze` or `kinetoscope.compare`, or a run folder.
        height: height of the frame in pixels, above 0.

    Raises:
        SettingsError: for any other ``source`` or ``height``.
        KinetoscopeError: as `kinetoscope.analyze` does.
    """
    if isinstance(height, bool) or not isinstance(height, int) or height <= 0:
        raise SettingsError(f"The height of the frame must be a number of pixels above 0, not {height!r}.")
    page = _build_page(source)
    return NotebookPage(page.title, _render_fitting_frame(page, height))


def _build_page(source: Any) -> PageData:
    """Return the page of a report, a comparison or a run folder."""
    if isinstance(source, Comparison):
        names = [facts["title"] or "a run" for facts in (source.before, source.after)]
        return remove_personal_names(
            PageData(
                version=kinetoscope.__version__,
                title=" and ".join(names),
                comparison=source.to_dict(),
                comparison_summary=describe_comparison(source),
                compared_sides=build_compared_sides(source),
                part_labels=HOST_PART_LABELS | DEVICE_PART_LABELS,
            )
        )
    if isinstance(source, str | os.PathLike):
        source = analyze(source)
    if not isinstance(source, RunReport):
        raise SettingsError(
            f"kinetoscope.view shows what kinetoscope.analyze or kinetoscope.compare returned, or the folder of a run; "
            f"not a {type(source).__name__}."
        )
    return build_page(source, kinetoscope.__version__)


def _render_fitting_frame(page: PageData, height: int) -> str:
    """Return the page as a frame; its largest table is halved until it is small enough."""
    counts = {name: len(rows) for name, rows in _find_tables(page).items()}
    while len(frame := _render_frame(page, height)) > MAX_FRAME_BYTES and (tables := _find_tables(page)):
        largest = max(tables, key=lambda name: len(msgspec.json.encode(tables[name])))
        if not tables[largest]:
            break
        page = _add_note(_replace_rows(page, largest, tables[largest][: len(tables[largest]) // 2]), counts)
    return frame


def _find_tables(page: PageData) -> dict[str, Sequence[Any]]:
    """Return the rows of the report and its sums of calls by name, or the ``rows`` of the comparison."""
    if page.report:
        tables: dict[str, Sequence[Any]] = {name: page.report[name] for name in TABLES}
        return tables | {_name_table(table): table.rows for table in page.call_tables}
    return {"rows": page.comparison["rows"]} if page.comparison else {}


def _name_table(table: CallTable) -> str:
    return f"{table.of} by {table.by}"


def _replace_rows(page: PageData, name: str, rows: Sequence[Any]) -> PageData:
    """Return the page with other rows in one of its tables."""
    if not page.report:
        return replace(page, comparison=(page.comparison or {}) | {name: rows})
    if name in TABLES:
        return replace(page, report=page.report | {name: rows})
    tables = [replace(table, rows=list(rows)) if _name_table(table) == name else table for table in page.call_tables]
    return replace(page, call_tables=tables)


def _add_note(page: PageData, counts: dict[str, int]) -> PageData:
    """Return the page with a note on rows left out; ``counts`` are the numbers of rows before."""
    kept = {name: len(rows) for name, rows in _find_tables(page).items()}
    truncated = [f"{kept[name]:,} of {counts[name]:,} {name}" for name in kept if kept[name] < counts[name]]
    limit = format_file_size(MAX_FRAME_BYTES)
    sentence = f"To stay below {limit} in a notebook, this page has only {', '.join(truncated)}, the first ones."
    others = [note for note in page.notes if not note.startswith("To stay below")]
    return replace(page, notes=[*others, f"{sentence} `kinetoscope report` writes a page with all of them."])


def _render_frame(page: PageData, height: int) -> str:
    """Return a frame with a separate origin: its page may run its script, and reach nothing else."""
    return str(load_macros("report/notebook/frame.jinja").frame(f"Report: {page.title}", render_page(page), height))
