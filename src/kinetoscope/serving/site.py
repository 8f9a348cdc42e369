"""What is at which address: the list of runs, a run, a report, a trace."""

import os
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import BinaryIO
from urllib.parse import quote, unquote_to_bytes

from kinetoscope.serving.page import PAGE_POLICY, REPORT_POLICY, Pages, message
from kinetoscope.serving.runs import find_runs, is_report, is_trace_name
from kinetoscope.training.run_folder import RunFolder

PAGE_TYPE, _TRACE_TYPE = "text/html; charset=utf-8", "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a browser gets: a page of ours, or the content of ``file``, which the receiver closes."""

    status: HTTPStatus = HTTPStatus.OK
    page: str = ""
    file: BinaryIO | None = None
    content_type: str = PAGE_TYPE
    policy: str = PAGE_POLICY
    headers: dict[str, str] = field(default_factory=dict)


class Site:
    """The runs in a folder, at their addresses. Nothing but traces and reports is served of it."""

    def __init__(self, folder: RunFolder, pages: Pages) -> None:
        self._folder = folder
        self._pages = pages
        self._at = {"run": self._run, "report": self._report, "trace": self._trace}

    def answer(self, path: str) -> Answer:
        """What is at ``path``, an address without its query. Never raises because of what is in the folder."""
        _, kind, name = [*path.split("/", 2), "", ""][:3]
        try:
            if path == "/":
                return Answer(page=self._pages.listing(find_runs(self._folder)))
            if path.startswith("/") and kind in self._at and path.count("/") > 1:
                # The standard library reads the bytes of an address as Latin-1.
                return self._at[kind](os.fsdecode(unquote_to_bytes(name.encode("latin-1", errors="replace"))))
        except FileNotFoundError:
            pass
        except OSError as error:
            return refusal(HTTPStatus.FORBIDDEN, "Not served", f"{error.strerror or error}")
        return refusal(HTTPStatus.NOT_FOUND, "Not found", "There is no such run, report or trace. It may be deleted.")

    def _run(self, name: str) -> Answer:
        name = name or "."
        run = next((run for run in find_runs(self._folder).runs if run.name == name), None)
        if run is None:
            raise FileNotFoundError(name)
        return Answer(page=self._pages.run(run))

    def _report(self, name: str) -> Answer:
        if not is_report(self._folder, name):
            raise FileNotFoundError(name)
        return Answer(file=self._folder.open(name), policy=REPORT_POLICY)

    def _trace(self, name: str) -> Answer:
        if not is_trace_name(name):
            raise FileNotFoundError(name)
        headers = {"Content-Disposition": _attachment(PurePosixPath(name).name)}
        return Answer(file=self._folder.open(name), content_type=_TRACE_TYPE, headers=headers)


def refusal(status: HTTPStatus, title: str, sentence: str) -> Answer:
    """A page that says why there is no other."""
    return Answer(status=status, page=message(title, sentence))


def _attachment(name: str) -> str:
    """The header that has a browser save a file under its name, and never show it."""
    return f"attachment; filename*=UTF-8''{quote(os.fsencode(name), safe='')}"
