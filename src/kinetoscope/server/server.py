"""HTTP server of ``kinetoscope view``: read-only, for browsers on this machine that have its link."""

import os
import sys
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from kinetoscope.server.access import Access, is_local_host
from kinetoscope.server.connections import MAX_CONNECTIONS, Connections
from kinetoscope.server.plain_pages import render_reload
from kinetoscope.server.site import Response, Site, build_refusal

LOOPBACK = "127.0.0.1"
_IDLE_S = 60
_METHODS = "GET, HEAD"
_UNAVAILABLE = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# Other pages get no address of this server as a referrer, and cannot embed its files.
_SECURITY_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class FolderServer(ThreadingHTTPServer):
    """HTTP server for a ``site`` on the loopback interface; port 0 is a free one.

    Raises:
        OSError: the port cannot be used.
    """

    daemon_threads = True  # a browser that is still reading does not delay the end of the command
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, site: Site, port: int = 0, connections: Connections | None = None) -> None:
        self.site, self.access, self.connections = site, Access(), connections or Connections()
        super().__init__((LOOPBACK, port), _Request)

    @property
    def link(self) -> str:
        """Address to open in a browser, with the token."""
        return self.access.link(self.server_port)

    def server_bind(self) -> None:
        """Bind the socket, without the slow lookup of the host name in HTTPServer."""
        TCPServer.server_bind(self)  # HTTPServer looks the host name up, which may be slow
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a request on a thread, or refuse it at the limit of connections."""
        if self.connections.add(request):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(0)
            request.sendall(_UNAVAILABLE)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and stop counting it toward the limit of connections."""
        super().shutdown_request(request)
        self.connections.remove(request)

    def service_actions(self) -> None:
        """Close connections whose request is incomplete for too long."""
        self.connections.close_expired()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error of a request, unless the browser has disconnected."""
        error = sys.exception()
        if not isinstance(error, (ConnectionError, TimeoutError)):  # else the browser has disconnected
            print(f"kinetoscope view: A request failed: {error!r}.", file=sys.stderr)


class _Request(BaseHTTPRequestHandler):
    """One request of a browser."""

    timeout = _IDLE_S

    def parse_request(self) -> bool:
        """Parse the request, and record that it is complete."""
        is_request = super().parse_request()
        assert isinstance(self.server, FolderServer)
        self.server.connections.mark_requested(self.connection)
        return is_request

    def do_GET(self) -> None:
        """Answer a GET request."""
        assert isinstance(self.server, FolderServer)
        self._send(self._respond(self.server.site, self.server.access))

    def do_HEAD(self) -> None:
        """Answer a HEAD request."""
        self.do_GET()

    def _respond(self, site: Site, access: Access) -> Response:
        host = self._read_host()
        if not is_local_host(host):
            return build_refusal(
                HTTPStatus.FORBIDDEN,
                "Not under this name",
                "This server answers only as localhost, 127.0.0.1 or [::1]. Open the link that the terminal shows.",
            )
        path, _, query = self.path.partition("?")
        if access.has_token(query):
            headers = {"Set-Cookie": access.cookie(host), "Location": "/"}
            return Response(status=HTTPStatus.SEE_OTHER, headers=headers)
        if access.has_cookie(host, self.headers.get("Cookie", "")):
            return site.answer(path, query)
        if self._is_cross_site_navigation():
            return Response(page=render_reload())
        return build_refusal(
            HTTPStatus.FORBIDDEN,
            "This needs the link",
            "Open the link that kinetoscope view prints in its terminal: its token grants access to these runs. Each "
            "start of the command prints a new link.",
        )

    def _read_host(self) -> str:
        """Return the host of the request; empty without one, or with several."""
        hosts = self.headers.get_all("Host", [])
        return hosts[0] if len(hosts) == 1 else ""

    def _is_cross_site_navigation(self) -> bool:
        """Return whether a link of another site leads here: its request has no cookie, so the page is loaded again."""
        get_header = self.headers.get
        return get_header("Sec-Fetch-Mode") == "navigate" and get_header("Sec-Fetch-Site") in (
            "cross-site",
            "same-site",
        )

    def _send(self, answer: Response) -> None:
        if answer.file is None:
            content = answer.page.encode(errors="backslashreplace")
            self._send_head(answer, len(content))
            if self.command != "HEAD":
                self.wfile.write(content)
            return
        with answer.file as file:
            size = os.fstat(file.fileno()).st_size
            self._send_head(answer, size)
            if self.command != "HEAD" and size:
                self.connection.sendfile(file, count=size)

    def _send_head(self, answer: Response, num_bytes: int) -> None:
        self.send_response(answer.status)
        fixed = {"Content-Type": answer.content_type, "Content-Length": str(num_bytes)}
        for name, value in {
            **fixed,
            "Content-Security-Policy": answer.policy,
            **_SECURITY_HEADERS,
            **answer.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a refusal of a malformed request; the standard library calls this."""
        status = HTTPStatus(code)
        is_method = status is HTTPStatus.NOT_IMPLEMENTED  # a method such as POST, which has no handler above
        self._send(_build_method_refusal() if is_method else build_refusal(status, status.phrase, message or ""))

    def version_string(self) -> str:
        """Return the value of the ``Server`` header."""
        return "kinetoscope"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the user, and one of the addresses has the token."""


def _build_method_refusal() -> Response:
    """Return the response to other methods than GET and HEAD."""
    answer = build_refusal(HTTPStatus.METHOD_NOT_ALLOWED, "Only for reading", f"This server only accepts {_METHODS}.")
    return replace(answer, headers={"Allow": _METHODS})
