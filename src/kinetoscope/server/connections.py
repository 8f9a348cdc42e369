"""serving: how many browsers may be connected at once, and which one has to go if there are too many."""

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Condition

MAX_CONNECTIONS = 64
"""So many connections, each with a thread of its own, are open at once."""

_EVICTION_TIMEOUT_S = 1.0


class Connections:
    """The open connections of a server, of any number of threads.

    A browser asks at once, and reads what it gets. So a client that only holds connections loses them: one that has not
    finished asking after ``request_timeout_s``; and, where all places are taken, the one that has been asking longest,
    or that has been reading for more than ``response_timeout_s``.
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
        """Takes a new connection, which is asking; returns False if there is no place for it."""
        with self._changed:
            if self._is_full():
                _shut_down(self._find_evictable())
                self._changed.wait_for(lambda: not self._is_full(), _EVICTION_TIMEOUT_S)
            if self._is_full():
                return False
            self._requesting[connection] = self._clock()
            return True

    def mark_requested(self, connection: socket.socket) -> None:
        """Notes that the request of a connection is complete."""
        with self._changed:
            if self._requesting.pop(connection, None) is not None:
                self._responding[connection] = self._clock()

    def remove(self, connection: socket.socket) -> None:
        """Forgets a connection that is closed."""
        with self._changed:
            self._requesting.pop(connection, None)
            self._responding.pop(connection, None)
            self._changed.notify_all()

    def close_expired(self) -> None:
        """Ends the connections that have been asking for too long."""
        with self._changed:
            _shut_down(self._find_older(self._requesting, self._request_timeout_s))

    def _is_full(self) -> bool:
        return len(self._requesting) + len(self._responding) >= self._max_connections

    def _find_evictable(self) -> list[socket.socket]:
        """The connection that has to go, if there is one; those of a dict are in the order of their times."""
        return list(self._requesting)[:1] or self._find_older(self._responding, self._response_timeout_s)[:1]

    def _find_older(self, connections: dict[socket.socket, float], age_s: float) -> list[socket.socket]:
        until = self._clock() - age_s
        return [connection for connection, since in connections.items() if since < until]


def _shut_down(connections: Iterable[socket.socket]) -> None:
    """Ends connections. Their threads see that, and close them."""
    for connection in connections:
        with suppress(OSError):  # the thread was faster
            connection.shutdown(socket.SHUT_RDWR)
