"""Ports on loopback, for servers that tests start in processes of their own."""

import random
import socket
import time

_PORTS = range(20_000, 29_000)
"""Ports that no system gives to those who take any: another process would have one before the server has started."""


def free_port() -> int:
    """Return a port without a listener."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := random.SystemRandom().choice(_PORTS)))
            except OSError:  # it has a listener
                continue
            return port


def wait_for(port: int, timeout_s: float = 60.0) -> None:
    """Wait until something listens on the port. Raises OSError if nothing does in time."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
