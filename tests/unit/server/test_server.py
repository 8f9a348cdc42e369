"""Responses of the server: the pages and files of a folder, by the link that the command prints."""

import socket
import threading
from http.cookiejar import CookieJar
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.server.run_lists import RunLists
from kinetoscope.server.server import FolderServer
from kinetoscope.server.site import Site


@pytest.fixture
def server(tmp_path):
    (tmp_path / "digits" / "traces").mkdir(parents=True)
    (tmp_path / "digits" / "traces" / "rank0.json").write_text('{"traceEvents":[]}')
    with FolderServer(Site(RunLists(RunFolder(tmp_path), "https://ui.perfetto.dev"))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_trace_comes_whole_and_a_head_request_gets_its_size_alone(server):
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    assert "digits" in browser.open(server.link).read().decode()
    address = f"http://127.0.0.1:{server.server_port}/trace/digits/traces/rank0.json"
    assert browser.open(address).read() == b'{"traceEvents":[]}'
    head = browser.open(Request(address, method="HEAD"))
    assert (head.headers["Content-Length"], head.read()) == ("18", b"")


def test_invalid_request_is_answered_with_the_reason(server):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/x.y\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"Bad request version" in answer
