"""Limit of open connections, and the choice of those that are closed beyond it."""

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Condition

MAX_CONNECTIONS = 64
"""Limit of open connections, each with a thread."""

_EVICTION_TIMEOUT_S = 1.0


class Connections:
    """Open connections of a server; methods may be called from any thread.

    A browser sends its request at once, and reads the response. So clients that only hold connections lose them: those
    whose request is incomplete after ``request_timeout_s``; and at the limit, the one with the oldest incomplete
    request, or one that has been reading for more than ``response_timeout_s``.
    """

    def __init__(
        self,
        max_connections: int = MAX_CONNECTIONS,
        request_timeout_s: float = 15.0,
        response_timeout_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_connections, self._request_timeout_s, self._response_timeout_s, self._clock = (
            max_connections,
            request_timeout_s,
            response_timeout_s,
            clock,
        )
        self._requesting: dict[socket.socket, float] = {}
        self._responding: dict[socket.socket, float] = {}
        self._changed = Condition()

    def add(self, connection: socket.socket) -> bool:
        """Add a new connection; return False if the limit is reached."""
        with self._changed:
            if self._is_full():
                _shut_down(self._find_evictable())
                self._changed.wait_for(lambda: not self._is_full(), _EVICTION_TIMEOUT_S)
            if self._is_full():
                return False
            self._requesting[connection] = self._clock()
            return True

    def mark_requested(self, connection: socket.socket) -> None:
        """Record that the request of a connection is complete."""
        with self._changed:
            if self._requesting.pop(connection, None) is not None:
                self._responding[connection] = self._clock()

    def remove(self, connection: socket.socket) -> None:
        """Remove a closed connection."""
        with self._changed:
            self._requesting.pop(connection, None)
            self._responding.pop(connection, None)
            self._changed.notify_all()

    def close_expired(self) -> None:
        """Close connections whose request is incomplete for too long."""
        with self._changed:
            _shut_down(self._find_older(self._requesting, self._request_timeout_s))

    def _is_full(self) -> bool:
        return len(self._requesting) + len(self._responding) >= self._max_connections

    def _find_evictable(self) -> list[socket.socket]:
        """Return the connection to close at the limit, if there is one; dicts are in the order of their times."""
        return list(self._requesting)[:1] or self._find_older(self._responding, self._response_timeout_s)[:1]

    def _find_older(self, connections: dict[socket.socket, float], age_s: float) -> list[socket.socket]:
        """Return the connections that are older than ``age_s``."""
        until = self._clock() - age_s
        return [connection for connection, since in connections.items() if since < until]


def _shut_down(connections: Iterable[socket.socket]) -> None:
    """Shut connections down; their threads notice it and close them."""
    for connection in connections:
        with suppress(OSError):  # its thread has closed it
            connection.shutdown(socket.SHUT_RDWR)
