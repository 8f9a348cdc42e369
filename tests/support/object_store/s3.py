"""A real S3 API on loopback (moto's server, in a process of its own), and a faulty proxy in front of it."""

import os
import random
import socket
import socketserver
import struct
import threading
from collections import Counter
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener
from xml.etree import ElementTree

import pytest

from support.fork_server import start_forked
from support.free_ports import free_port, wait_for

MISSING = ", ".join(name for name in ("s3fs", "moto") if find_spec(name) is None)
BUCKET = "kinetoscope-tests"
SECRET = "s3cr3t-that-must-not-leak"
SERVING = ("moto.server", "moto.s3.urls")
SERVE = "from moto.server import main\nmain()"
_without_proxies = build_opener(ProxyHandler({}))


class S3Server:
    """moto's server. With ``environment`` a process uses it, through ``endpoint``. Skips the test if it cannot run."""

    def __init__(self) -> None:
        if MISSING:
            pytest.skip(f"There is no store to upload to: {MISSING} is not installed.")
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process = start_forked(SERVING, SERVE, "-H", "127.0.0.1", "-p", self.port)
        wait_for(self.port)
        self.make_bucket(BUCKET)

    def environment(self, endpoint: str | None = None, read_timeout_s: float = 20) -> dict[str, str]:
        settings = f'{{"config_kwargs": {{"read_timeout": {read_timeout_s}}}}}'
        return {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "AKIATESTINGTESTING",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "FSSPEC_S3": settings,
        }

    def make_bucket(self, name: str) -> None:
        self._request("PUT", f"/{name}").close()

    def names(self) -> list[str]:
        """Return the keys in the bucket."""
        with self._request("GET", f"/{BUCKET}?list-type=2") as answer:
            listed = ElementTree.parse(answer).getroot()
        assert listed.findtext("{*}IsTruncated") == "false", "there are more names than the store lists at once"
        return sorted(key.text or "" for key in listed.findall("{*}Contents/{*}Key"))

    def content(self, name: str) -> bytes:
        with self._request("GET", f"/{BUCKET}/{quote(name)}") as answer:
            return answer.read()

    def etag(self, name: str) -> str:
        with self._request("HEAD", f"/{BUCKET}/{quote(name)}") as answer:
            return answer.headers["ETag"].strip('"')

    def _request(self, method: str, path: str) -> Any:
        """Return the store's response. Importing s3fs only for this would take half a second of processor time."""
        request = Request(self.endpoint + path, headers={"Authorization": "by anybody"}, method=method)
        return _without_proxies.open(request, timeout=60)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class FaultyProxy:
    """A proxy in front of the server. A share ``fault_share`` of all requests gets one of ``faults``: ``reset`` (the
    connection is reset before the server gets the request), ``lost`` (reset after it, instead of the answer), ``503``,
    ``hang``.
    """

    def __init__(self, target_port: int, faults=("reset", "lost", "503"), fault_share: float = 0.5, seed: int = 1):
        self._target = target_port
        self._faults = faults
        self.fault_share = fault_share
        self._random = random.Random(seed)
        self.met: Counter[str] = Counter()
        self.requests: list[tuple[str, bytes]] = []
        """Every request: its first line, and its body."""
        self.closing = threading.Event()
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                proxy._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(30)
        try:
            request = _read_request(client)
            if request:
                head, _, body = request.partition(b"\r\n\r\n")
                self.requests.append((head.partition(b"\r\n")[0].decode(errors="replace"), body))
                self._answer(client, request)
        except OSError:
            pass  # the client closed the connection
        finally:
            client.close()

    def _answer(self, client: socket.socket, request: bytes) -> None:
        fault = self._random.choice(self._faults) if self._random.random() < self.fault_share else "none"
        self.met[fault] += 1
        if fault == "503":
            body = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>'
            head = f"HTTP/1.1 503 Slow Down\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            client.sendall(head.encode() + body)
        elif fault == "hang":
            self.closing.wait(120)
        elif fault == "reset":
            _reset(client)
        else:
            answer = self._forward(request)
            _reset(client) if fault == "lost" else client.sendall(answer)

    def _forward(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._target), timeout=30) as server:
            server.sendall(request)
            answer = b""
            while piece := server.recv(1 << 16):
                answer += piece
        return answer


def _read_request(client: socket.socket) -> bytes:
    """Return a complete request, with ``Connection: close``; empty if the client sent none."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(1 << 16)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    if b"100-continue" in fields.get(b"expect", b"").lower():
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    while not _is_whole(fields, body):
        body += client.recv(1 << 16)
    kept = [line for line in lines if not line.lower().startswith((b"connection:", b"expect:"))]
    return b"\r\n".join([*kept, b"Connection: close"]) + b"\r\n\r\n" + body


def _is_whole(fields: dict[bytes, bytes], body: bytes) -> bool:
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(fields.get(b"content-length", 0))


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
