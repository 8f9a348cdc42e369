"""serving: pages without a script, and what can be read of the list of runs without one. Names are a stranger's."""

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.resources import files

from kinetoscope.pages.run_list import ListData, ListedFile, ListedRun, RunFiles, RunNow
from kinetoscope.texts.wording import counted, printable, sized


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE = files("kinetoscope.serving").joinpath("page.css").read_text(encoding="utf-8")

PAGE_POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""What a page without a script may load, as a Content-Security-Policy."""

REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The same for a report, which may be a stranger's: it belongs to no origin, and can read and reach nothing."""

_HEAD = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
_HEAD += '<meta name="viewport" content="width=device-width">\n<link rel="icon" href="data:,">\n'


def message(title: str, sentence: str, head: str = "") -> str:
    """A page that says why there is no other."""
    return (
        f"{_HEAD}{head}<title>{html.escape(title)} - Kinetoscope</title>\n<style>{_STYLE}</style>\n<body>\n<main>"
        f"\n<h1>{html.escape(title)}</h1>\n<p>{html.escape(sentence)}</p>\n</main>\n</body>\n</html>\n"
    )


def waiting(title: str, seconds: int, address: str) -> str:
    """A page that goes to another address in a second."""
    again = f'<meta http-equiv="refresh" content="1; url={html.escape(address)}">\n'
    since = f" For {counted(seconds, 'second')} now." if seconds else ""
    sentence = f"This page shows it as soon as it is ready.{since}"
    return message(f"{title} ...", sentence, again)


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


def plain_list(data: ListData) -> str:
    """What can be read of a list of runs, or of one run, without JavaScript; as HTML."""
    notes = "".join(f'<p class="problem">{_name(note)}</p>' for note in data.notes)
    body = _files(data.files) if data.files is not None else _runs(data)
    return f"<h1>{_name(data.title)}</h1>\n{body}{notes}"


def _runs(data: ListData) -> str:
    if not data.runs:
        return (
            f"<p>There is no run in {_name(data.folder)}: no trace, no report, and nothing that still records. View "
            "the folder that holds your runs, which is <code>runs</code> unless you chose another, or record one: "
            "<code>with kinetoscope.profile() as profiler:</code></p>"
        )
    titles = ("Run", "State", "Began, or last written", "Ranks", "Traces", "Report")
    return _table(titles, map(_row, data.runs))


def _row(run: ListedRun) -> Iterable[str]:
    notes = "".join(f"<br>{_name(note)}" for note in run.notes)
    traces = f"{run.num_traces:,}, {sized(run.traces_bytes)}" if run.num_traces else ""
    return (
        f'<a href="{run.address}">{_name(run.title)}</a>{notes}',
        run.state or "",
        _time(run.when_ms),
        _ranks(run),
        traces,
        f'<a href="{run.report}">report</a>' if run.report else "",
    )


def _files(files: RunFiles) -> str:
    run = files.run
    facts = ", ".join(filter(None, (run.state, _ranks(run), _time(run.when_ms))))
    notes = "".join(f"<p>{_name(note)}</p>" for note in run.notes)
    report = f'<p><a href="{run.report}">The report</a></p>' if run.report and not run.has_report else ""
    tables = [
        _table((title, "Size", "Last written"), map(_file, found))
        for title, found in (("Report", files.reports), ("Trace", files.traces))
        if found
    ]
    back = "" if files.is_only else '<p><a href="/">All runs</a></p>'
    now = _now(files.now) if files.now is not None else ""
    return "\n".join((back, f"<p>{facts}</p>", notes, now, report, *tables))


def _now(now: RunNow) -> str:
    """What a run does now."""
    said = "".join(f"<p>{_name(sentence)}</p>" for sentence in (now.headline, *now.sentences, now.rest) if sentence)
    rows = _table(now.columns, (map(_name, row.cells) for row in now.rows)) if now.rows else ""
    return f"<h2>Now</h2>{said}{rows}"


def _file(file: ListedFile) -> Iterable[str]:
    download = "" if file.address.startswith("/report/") else " download"
    link = f'<a href="{file.address}"{download}>{_name(file.name)}</a>'
    return link, sized(file.size_bytes), _time(file.changed_ms)


def _name(text: str) -> str:
    """A foreign text, which cannot change the page or the direction of writing around it."""
    return f"<bdi>{html.escape(printable(text))}</bdi>"


def _time(moment_ms: float | None) -> str:
    """A moment for who has no script that knows the reader's zone."""
    if moment_ms is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(moment_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):  # a file may have any time
        return ""


def _ranks(run: ListedRun) -> str:
    if run.num_ranks is None:
        return ""
    if run.world_size is None or run.world_size == run.num_ranks:
        return counted(run.num_ranks, "rank")
    return f"{run.num_ranks:,} of {counted(run.world_size, 'rank')}"


def _table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )
