"""Pages without JavaScript, and the list of runs as plain HTML. Names come from untrusted files."""

import base64
import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from kinetoscope.core.text.templates import load_macros
from kinetoscope.core.text.wording import format_count, format_file_size
from kinetoscope.pages.run_list import STATE_LABELS, ListData, ListedFile, ListedRun, RunFiles


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE = files("kinetoscope.server").joinpath("page.css").read_text(encoding="utf-8")

PAGE_POLICY = (
    f"default-src 'none'; style-src {_hash_source(_STYLE)}; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy of a page without JavaScript."""

REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of a report, which may be untrusted: it has no origin, and cannot read or load anything."""


def render_message(title: str, sentence: str, next_address: str = "") -> str:
    """Return a page with a message; with ``next_address`` it goes there after a second."""
    return str(_load_macros().render_message(title, sentence, _STYLE, next_address))


def render_waiting(title: str, seconds: int, address: str) -> str:
    """Return a page that goes to another address in a second."""
    since = f" For {format_count(seconds, 'second')} now." if seconds else ""
    return render_message(f"{title} ...", f"This page shows it as soon as it is ready.{since}", address)


def render_reload() -> str:
    """Return a page that loads itself again: that request comes from the same origin, so it has the cookie."""
    return str(_load_macros().render_reload())


def render_redirect(link: str) -> str:
    """Return a page that leads to another one."""
    return str(_load_macros().render_redirect(link))


def render_plain_list(data: ListData) -> str:
    """Return a list of runs, or one run, as HTML without JavaScript."""
    if data.files is not None:
        body = _render_files(data.files)
    else:
        columns = ("Run", "State", "Began, or last written", "Ranks", "Traces", "Report")
        body = _load_macros().runs(data.folder, columns, list(map(_render_row, data.runs)))
    return str(_load_macros().list(data.title, body, data.notes))


def _load_macros() -> Any:
    return load_macros("server/plain_pages.jinja")


def _render_row(run: ListedRun) -> Iterable[str]:
    traces = f"{run.num_traces:,}, {format_file_size(run.traces_bytes)}" if run.num_traces else ""
    report = _load_macros().link(run.report, "report") if run.report else ""
    return (
        _load_macros().title_of_run(run),
        _format_state(run),
        _format_time(run.when_ms),
        _format_ranks(run),
        traces,
        report,
    )


def _render_files(files: RunFiles) -> str:
    run = files.run
    facts = ", ".join(filter(None, (_format_state(run), _format_ranks(run), _format_time(run.when_ms))))
    tables = [
        ((title, "Size", "Last written"), list(map(_render_file, found)))
        for title, found in (("Report", files.reports), ("Trace", files.traces))
        if found
    ]
    return _load_macros().files_of_run(files, facts, tables)


def _render_file(file: ListedFile) -> Iterable[str]:
    is_download = not file.address.startswith("/report/")
    link = _load_macros().link(file.address, _load_macros().name(file.name), is_download)
    return link, format_file_size(file.size_bytes), _format_time(file.changed_ms)


def _format_time(moment_ms: float | None) -> str:
    """Return a time in UTC, since the reader's time zone needs JavaScript."""
    if moment_ms is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(moment_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):  # the time of a file may be out of range
        return ""


def _format_state(run: ListedRun) -> str:
    return STATE_LABELS.get(run.state or "", run.state or "")


def _format_ranks(run: ListedRun) -> str:
    """Return the number of ranks, and of those without a recording."""
    if run.num_ranks is None:
        return ""
    if run.world_size is None or run.world_size == run.num_ranks:
        return format_count(run.num_ranks, "rank")
    return f"{run.num_ranks:,} of {format_count(run.world_size, 'rank')}"
