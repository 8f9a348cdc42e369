"""Pages of `kinetoscope view` in a browser, and web servers that they contact."""

import http.server
import threading
from contextlib import contextmanager, suppress

from support.view_server import MAX_WAIT_S

WAIT_MS = MAX_WAIT_S * 1000
REPORT_MARK = '<!doctype html><meta name="generator" content="kinetoscope 0.1.0" />'
SCHEDULE_SAID = "Nothing was recorded: the schedule returned skip for each of the 3 batches."


@contextmanager
def web_server(handler):
    """A web server on loopback, with a port of its own; returns its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, without a message on missing ones and on interrupted reads."""

    def handle(self):
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_):
        pass


@contextmanager
def pages_of(text_by_path):
    """A web server with a few pages."""

    class Handler(Quiet):
        def do_GET(self):
            text = text_by_path.get(self.path.partition("?")[0])
            self.send_response(404 if text is None else 302 if text.startswith("http") else 200)
            self.send_header("Content-Type", "text/html")
            if text and text.startswith("http"):
                self.send_header("Location", text)
            self.end_headers()
            self.wfile.write((text or "").encode())

    with web_server(Handler) as address:
        yield address


def names(tab):
    return tab.locator(".run-name a").all_inner_texts()


def refocus(tab):
    """Focus the tab again, as a reader who returns to it."""
    tab.wait_for_timeout(1100)  # requests of one second share a search
    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
