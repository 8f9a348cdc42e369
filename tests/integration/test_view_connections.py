"""`kinetoscope view`: limits on connections, and no client can keep a browser out; over real sockets."""

import math
import socket
import threading
from contextlib import ExitStack

import pytest

from kinetoscope.server import connections
from kinetoscope.server.connections import MAX_CONNECTIONS, Connections
from support.polling import wait_for
from support.view_server import MAX_WAIT_S, log_in, send_request, served


@pytest.fixture
def runs(tmp_path):
    """A run."""
    (tmp_path / "runs" / "digits" / "traces").mkdir(parents=True)
    (tmp_path / "runs" / "digits" / "traces" / "rank0.json").write_text('{"traceEvents": []}')
    return tmp_path / "runs"


@pytest.fixture
def patient(monkeypatch):
    """A server that waits for the thread of a connection that it closes: on a busy machine this takes a while."""
    monkeypatch.setattr(connections, "_EVICTION_TIMEOUT_S", MAX_WAIT_S)


def slow_loris(port):
    """Return a connection whose request never ends."""
    connection = socket.create_connection(("127.0.0.1", port), MAX_WAIT_S)
    connection.sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n")
    return connection


def num_request_threads():
    return sum("process_request" in thread.name for thread in threading.enumerate())


@pytest.mark.usefixtures("patient")
def test_client_with_many_open_connections_blocks_no_browser_and_gets_few_threads(runs):
    with served(runs, connections=Connections(request_timeout_s=math.inf)) as server, ExitStack() as stack:
        cookie = log_in(server.link)
        held = [stack.enter_context(slow_loris(server.server_port)) for _ in range(200)]
        assert send_request(server.server_port, Cookie=cookie)[0] == 200
        wait_for(lambda: num_request_threads() <= MAX_CONNECTIONS)  # threads of closed connections are ending
        assert held[0].recv(1) == b"", "the oldest one had to go"
        assert [send_request(server.server_port, Cookie=cookie)[0] for _ in range(5)] == [200] * 5


def test_slow_request_is_closed_at_its_time_limit_while_it_keeps_sending(runs):
    with (
        served(runs, connections=Connections(request_timeout_s=0.2)) as server,
        slow_loris(server.server_port) as connection,
    ):
        connection.settimeout(0.05)
        for _ in range(20 * MAX_WAIT_S):
            try:
                connection.sendall(b"X-More: 1\r\n")
                if not connection.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("it still holds its connection")


def reads_nothing(server, cookie, path):
    """Return a connection that has requested a large file, and does not read it."""
    connection = socket.create_connection(("127.0.0.1", server.server_port), MAX_WAIT_S)
    host = f"Host: 127.0.0.1:{server.server_port}"
    head = f"GET {path} HTTP/1.0\r\n{host}\r\nCookie: {cookie}\r\n\r\n"
    connection.sendall(head.encode())
    assert connection.recv(12) == b"HTTP/1.0 200"
    return connection


@pytest.fixture
def large(runs):
    """The address of a file that fits into no buffer."""
    (runs / "digits" / "traces" / "rank1.json").write_bytes(b"[" + b" " * 2**26)
    return "/trace/digits/traces/rank1.json"


def test_browser_is_refused_while_all_slots_are_in_use(runs, large):
    with served(runs, connections=Connections(max_connections=4)) as server, ExitStack() as stack:
        cookie = log_in(server.link)
        readers = [stack.enter_context(reads_nothing(server, cookie, large)) for _ in range(4)]
        status, headers, _ = send_request(server.server_port, Cookie=cookie)
        assert (status, headers["Retry-After"]) == (503, "1")
        readers.pop().close()
        wait_for(lambda: send_request(server.server_port, Cookie=cookie)[0] == 200)


@pytest.mark.usefixtures("patient")
def test_those_who_read_for_too_long_have_to_go_for_a_browser(runs, large):
    with (
        served(runs, connections=Connections(max_connections=4, response_timeout_s=-1)) as server,
        ExitStack() as stack,
    ):
        cookie = log_in(server.link)
        for _ in range(4):
            stack.enter_context(reads_nothing(server, cookie, large))
        assert send_request(server.server_port, Cookie=cookie)[0] == 200
