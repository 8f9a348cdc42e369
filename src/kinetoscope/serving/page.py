"""The pages that list runs, as HTML that can be read without JavaScript. Names in them are a stranger's."""

import base64
import hashlib
import html
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path, PurePosixPath
from urllib.parse import quote, urlsplit

from kinetoscope.serving.runs import MOST_ENTRIES, FoundFile, FoundRun, FoundRuns, RunState
from kinetoscope.training.wording import counted, printable, sized


def _asset(name: str) -> str:
    return files("kinetoscope.serving").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_SCRIPT, _STYLE = _asset("hand_over.js"), _asset("page.css")

PAGE_POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What our pages may load, as a Content-Security-Policy: their own parts and traces."""

REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The same for a report, which may be a stranger's: it belongs to no origin, and can read and reach nothing."""

_MOST_ROWS = 1000
_NOTHING = "—"
_HEAD = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
_HEAD += '<meta name="viewport" content="width=device-width">\n<link rel="icon" href="data:,">\n'


@dataclass(frozen=True, slots=True)
class Pages:
    """Makes the pages on the runs in ``folder``, with buttons that open traces in the Perfetto at ``perfetto_url``."""

    folder: Path
    perfetto_url: str

    def listing(self, found: FoundRuns) -> str:
        """The page with all runs; if there is only one, the page of that."""
        if len(found.runs) == 1 and found.is_complete:
            return self.run(found.runs[0], is_only=True)
        title = f"Runs in {printable(self._folder_name)}"
        rows = [self._row(run) for run in found.runs[:_MOST_ROWS]]
        table = _table(("Run", "State", "Ranks", "Last written", "Traces", "Reports"), rows) if rows else self._empty()
        notes = [] if found.is_complete else [f"Only the first {MOST_ENTRIES:,} files and folders were looked at."]
        if len(found.runs) > _MOST_ROWS:
            notes.append(f"And {len(found.runs) - _MOST_ROWS:,} more runs: view a folder further down to see them.")
        return self._page(title, [table, *(f'<p class="problem">{note}</p>' for note in notes)])

    def run(self, run: FoundRun, *, is_only: bool = False) -> str:
        """The page of one run: how it is doing, its reports and its traces."""
        back = "" if is_only else '<p><a href="/">All runs</a></p>'
        facts = [f"{_state(run)}, {_ranks(run)}, last written {_time(run.changed_ns)}."]
        if run.num_unsaved:
            ranks = counted(run.num_unsaved, "killed rank")
            facts.append(f"{ranks} left unsaved records: {_command('recover', self._path(run))} makes traces of them.")
        body = [back, *(f"<p>{fact}</p>" for fact in facts)]
        if run.problem:
            body.append(f'<p class="problem">{_name(run.problem)}</p>')
        return self._page(self._title(run), [*body, *self._reports(run), *self._traces(run)], with_script=True)

    def _row(self, run: FoundRun) -> Iterable[str]:
        link = f'<a href="{_address("run", run.name)}">{_name(self._title(run))}</a>'
        link += ' <span class="faint">itself, outside of its runs</span>' if run.name == "." else ""
        size = sized(sum(trace.size_bytes for trace in run.traces))
        traces = f"{len(run.traces):,}, {size}" if run.traces else _NOTHING
        reports = "<br>".join(map(_report_link, run.reports[:3])) or _NOTHING
        return link, _state(run), _ranks(run), _time(run.changed_ns), traces, reports

    def _reports(self, run: FoundRun) -> list[str]:
        if not run.reports:
            return ["<h2>Reports</h2>", f"<p>None here: {_command('report', self._path(run))} makes one.</p>"]
        rows = [(_report_link(file), *_size_and_time(file)) for file in run.reports[:_MOST_ROWS]]
        return ["<h2>Reports</h2>", _table(("Report", "Size", "Last written"), rows)]

    def _traces(self, run: FoundRun) -> list[str]:
        if not run.traces:
            return ["<h2>Traces</h2>", "<p>None here. A run writes them after each recorded cycle and at its end.</p>"]
        rows = [self._trace_row(run, file) for file in run.traces[:_MOST_ROWS]]
        table = _table(("Trace", "Size", "Last written", "Open"), rows)
        rest = len(run.traces) - len(rows)
        more = [f"<p>And {rest:,} more: view a folder further down to see them.</p>"] if rest > 0 else []
        return ["<h2>Traces</h2>", self._about_perfetto(), table, *more, '<p id="status" role="status"></p>']

    def _about_perfetto(self) -> str:
        url = html.escape(self.perfetto_url)
        return (
            f'<p class="faint">To look at a trace, click on the button beside it: that opens <a href="{url}" '
            f'rel="noreferrer">{url}</a> in a new tab and gives the content of the file to that page. Both happen in '
            "this browser. Without JavaScript, download the trace and open it there.</p>"
        )

    def _trace_row(self, run: FoundRun, file: FoundFile) -> Iterable[str]:
        address, last = _address("trace", file.name), printable(PurePosixPath(file.name).name)
        link = f'<a href="{address}" download>{_name(_within(file.name, run.name))}</a>'
        if file.name.endswith(".zst"):
            button = '<span class="faint">Perfetto cannot read .zst: kinetoscope convert makes .gz of it</span>'
        else:
            title = html.escape(f"{self._title(run)} {last}")
            button = (
                f'<button hidden data-trace="{address}" data-title="{title}" data-file="{html.escape(last)}">Open in '
                f"Perfetto: gives its content to the page of {_name(self._perfetto_origin)} in this browser</button>"
            )
        return link, *_size_and_time(file), button

    @property
    def _perfetto_origin(self) -> str:
        parts = urlsplit(self.perfetto_url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def _folder_name(self) -> str:
        return self.folder.name or str(self.folder)

    def _title(self, run: FoundRun) -> str:
        return printable(run.name if run.name != "." else self._folder_name)

    def _path(self, run: FoundRun) -> str:
        return os.path.normpath(self.folder / run.name)

    def _empty(self) -> str:
        return (
            f"<p>There is no run in {_name(str(self.folder))}: no trace, no report, and nothing that still records. "
            "View the folder that holds your runs, which is <code>runs</code> unless you chose another, or record one: "
            "<code>with kinetoscope.profile() as profiler:</code></p>"
        )

    def _page(self, title: str, body: Iterable[str], *, with_script: bool = False) -> str:
        script = f"<script>{_SCRIPT}</script>" if with_script else ""
        return (
            f"{_HEAD}<title>{html.escape(title)} - Kinetoscope</title>\n<style>{_STYLE}</style>\n"
            f'<body data-perfetto="{html.escape(self.perfetto_url)}">\n<main>\n<h1>{_name(title)}</h1>\n'
            + "\n".join(part for part in body if part)
            + f"\n</main>\n{script}\n</body>\n</html>\n"
        )


def message(title: str, sentence: str) -> str:
    """A page that says why there is no other."""
    return (
        f"{_HEAD}<title>{html.escape(title)} - Kinetoscope</title>\n<style>{_STYLE}</style>\n<body>\n<main>"
        f"\n<h1>{html.escape(title)}</h1>\n<p>{html.escape(sentence)}</p>\n</main>\n</body>\n</html>\n"
    )


def bounce() -> str:
    """A page that loads itself again: that request comes from a page of ours, so the browser sends our cookie."""
    return f'{_HEAD}<title>Kinetoscope</title>\n<meta http-equiv="refresh" content="0">\n</html>\n'


def leading_to(link: str) -> str:
    """A page that leads to another one."""
    link = html.escape(link)
    return (
        f'{_HEAD}<title>Kinetoscope</title>\n<meta name="referrer" content="no-referrer">\n<meta http-equiv="refresh" '
        f'content="0; url={link}">\n<p><a href="{link}">The runs</a></p>\n</html>\n'
    )


def _address(kind: str, name: str) -> str:
    """The address of a run, report or trace, as an attribute: letters that mean something in HTML are quoted."""
    return f"/{kind}/{'' if name == '.' else quote(os.fsencode(name))}"


def _name(text: str) -> str:
    """A foreign text, which cannot change the page or the direction of writing around it."""
    return f"<bdi>{html.escape(printable(text))}</bdi>"


def _within(name: str, run: str) -> str:
    return name if run == "." else str(PurePosixPath(name).relative_to(run))


def _report_link(file: FoundFile) -> str:
    return f'<a href="{_address("report", file.name)}">{_name(PurePosixPath(file.name).name)}</a>'


def _size_and_time(file: FoundFile) -> tuple[str, str]:
    return sized(file.size_bytes), _time(file.changed_ns)


def _time(moment_ns: int | None) -> str:
    if moment_ns is None:
        return _NOTHING
    try:
        return f"{datetime.fromtimestamp(moment_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):  # a file may have any time
        return _NOTHING


def _state(run: FoundRun) -> str:
    if run.state is RunState.UNKNOWN and not run.ranks:  # no run of ours
        return _NOTHING
    return f'<span class="{run.state.value}">{run.state.value}</span>'


def _ranks(run: FoundRun) -> str:
    if not run.ranks:
        return _NOTHING
    if run.world_size is None or run.world_size == len(run.ranks):
        return counted(len(run.ranks), "rank")
    return f"{len(run.ranks):,} of {counted(run.world_size, 'rank')}"


def _command(verb: str, path: str) -> str:
    return f"<code>kinetoscope {verb} {_name(shlex.quote(path))}</code>"


def _table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )
