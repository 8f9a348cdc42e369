"""Routes of the server: the list of runs, a run, a report, a trace."""

import os
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import BinaryIO
from urllib.parse import parse_qs, quote, unquote_to_bytes

from kinetoscope.pages.run_list import ListData, encode_list, find_list_policy, render_list
from kinetoscope.server.plain_pages import PAGE_POLICY, REPORT_POLICY, render_message, render_plain_list, render_waiting
from kinetoscope.server.report_builder import ReportBuilder
from kinetoscope.server.run_lists import RunLists, quote_name
from kinetoscope.server.run_search import is_report, is_trace_name

PAGE_TYPE, _TRACE_TYPE, _JSON_TYPE = "text/html; charset=utf-8", "application/octet-stream", "application/json"
_SHOWN = "shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Response to a browser: a page, or the content of ``file``, which the receiver closes."""

    status: HTTPStatus = HTTPStatus.OK
    page: str = ""
    file: BinaryIO | None = None
    content_type: str = PAGE_TYPE
    policy: str = PAGE_POLICY
    headers: dict[str, str] = field(default_factory=dict)


class Site:
    """The runs in a folder by address; no files but traces and reports are served.

    Missing reports are written by ``builder``, if given.
    """

    def __init__(self, lists: RunLists, builder: ReportBuilder | None = None) -> None:
        self.lists, self._folder, self._made = lists, lists.folder, builder
        self._routes = {
            "run": self._respond_with_run,
            "report": self._respond_with_report,
            "trace": self._respond_with_trace,
            "data": self._respond_with_data,
        }

    def answer(self, path: str, query: str = "") -> Response:
        """Return the response to a request; the content of the folder never makes it raise.

        ``path`` is the address without its ``query``.
        """
        _, kind, name = [*path.split("/", 2), "", ""][:3]
        try:
            if path == "/":
                return self._respond_with_page(self.lists.all())
            if path == "/generated/":
                return self._respond_with_built_report(query)
            if path.startswith("/") and kind in self._routes and path.count("/") > 1:
                # http.server decodes addresses as Latin-1.
                return self._routes[kind](os.fsdecode(unquote_to_bytes(name.encode("latin-1", errors="replace"))))
        except FileNotFoundError:
            pass
        except OSError as error:
            return build_refusal(HTTPStatus.FORBIDDEN, "Not served", f"{error.strerror or error}")
        return build_refusal(
            HTTPStatus.NOT_FOUND, "Not found", "There is no such run, report or trace. It may be deleted."
        )

    def _respond_with_run(self, name: str) -> Response:
        return self._respond_with_page(self.lists.one(name or "."))

    def _respond_with_page(self, data: ListData) -> Response:
        return Response(page=render_list(data, render_plain_list(data)), policy=find_list_policy())

    def _respond_with_data(self, name: str) -> Response:
        """Return the data of a page as JSON: of the page at the address without ``/data``."""
        if name and not name.startswith("run/"):
            raise FileNotFoundError(name)
        data = self.lists.one(name.removeprefix("run/") or ".") if name else self.lists.all()
        return Response(page=encode_list(data).decode(), content_type=_JSON_TYPE)

    def _respond_with_report(self, name: str) -> Response:
        if not is_report(self._folder, name):
            raise FileNotFoundError(name)
        return Response(file=self._folder.open(name), policy=REPORT_POLICY)

    def _respond_with_trace(self, name: str) -> Response:
        if not is_trace_name(name):
            raise FileNotFoundError(name)
        headers = {"Content-Disposition": _format_attachment(PurePosixPath(name).name)}
        return Response(file=self._folder.open(name), content_type=_TRACE_TYPE, headers=headers)

    def _respond_with_built_report(self, query: str) -> Response:
        """Return a report on a run, or on one compared with another; a waiting page while it is written.

        A comparison is shown at a separate address, which leads to that part of the report. The waiting page leads back
        from there, since browsers do not load an address again that has such a part.
        """
        parameters = parse_qs(query, keep_blank_values=True, encoding="latin-1", errors="replace")
        keys = ("before", "after") if "before" in parameters else ("run",)
        names = [os.fsdecode(parameters.get(key, [""])[0].encode("latin-1", errors="replace")) for key in keys]
        runs = [self.lists.find_run(name) for name in names]
        if self._made is None:
            raise FileNotFoundError(names[-1])
        page = self._made.get(runs)
        address = "/generated/?" + "&".join(f"{key}={quote_name(name)}" for key, name in zip(keys, names, strict=True))
        if page.is_ready and len(runs) > 1 and _SHOWN not in parameters:
            return Response(status=HTTPStatus.SEE_OTHER, headers={"Location": f"{address}&{_SHOWN}=#view=compare"})
        if page.is_ready:
            return Response(file=page.path.open("rb", buffering=0), policy=REPORT_POLICY)
        titles = [self.lists.run_title(name) for name in names]
        what = f"{titles[-1]} compared with {titles[0]}" if len(titles) > 1 else f"the report on {titles[0]}"
        if page.problem:
            return build_refusal(HTTPStatus.NOT_FOUND, "No report", f"Cannot make {what}: {page.problem}")
        return Response(page=render_waiting(f"Making {what}", page.seconds, address))


def build_refusal(status: HTTPStatus, title: str, sentence: str) -> Response:
    """Return a page with the reason for a refused request."""
    return Response(status=status, page=render_message(title, sentence))


def _format_attachment(name: str) -> str:
    """Return the header that makes a browser save a file under its name, and never show it."""
    return f"attachment; filename*=UTF-8''{quote(os.fsencode(name), safe='')}"
