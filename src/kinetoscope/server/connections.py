"""serving: how many browsers may be connected at once, and which one has to go if there are too many."""

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Condition

MOST_CONNECTIONS = 64
"""So many connections, each with a thread of its own, are open at once."""

_WAIT_S = 1.0


class Connections:
    """The open connections of a server, of any number of threads.

    A browser asks at once, and reads what it gets. So a client that only holds connections loses them: one that has not
    finished asking after ``asking_s``; and, where all places are taken, the one that has been asking longest, or that
    has been reading for more than ``reading_s``.
    """

    def __init__(
        self,
        most: int = MOST_CONNECTIONS,
        asking_s: float = 15.0,
        reading_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._asking_s, self._reading_s, self._clock = most, asking_s, reading_s, clock
        self._asking: dict[socket.socket, float] = {}
        self._reading: dict[socket.socket, float] = {}
        self._changed = Condition()

    def add(self, connection: socket.socket) -> bool:
        """Takes a new connection, which is asking; returns False if there is no place for it."""
        with self._changed:
            if self._is_full():
                _shut(self._oldest())
                self._changed.wait_for(lambda: not self._is_full(), _WAIT_S)
            if self._is_full():
                return False
            self._asking[connection] = self._clock()
            return True

    def has_asked(self, connection: socket.socket) -> None:
        """Notes that the request of a connection is complete."""
        with self._changed:
            if self._asking.pop(connection, None) is not None:
                self._reading[connection] = self._clock()

    def remove(self, connection: socket.socket) -> None:
        """Forgets a connection that is closed."""
        with self._changed:
            self._asking.pop(connection, None)
            self._reading.pop(connection, None)
            self._changed.notify_all()

    def end_late_ones(self) -> None:
        """Ends the connections that have been asking for too long."""
        with self._changed:
            _shut(self._older(self._asking, self._asking_s))

    def _is_full(self) -> bool:
        return len(self._asking) + len(self._reading) >= self._most

    def _oldest(self) -> list[socket.socket]:
        """The connection that has to go, if there is one; those of a dict are in the order of their times."""
        return list(self._asking)[:1] or self._older(self._reading, self._reading_s)[:1]

    def _older(self, connections: dict[socket.socket, float], age_s: float) -> list[socket.socket]:
        until = self._clock() - age_s
        return [connection for connection, since in connections.items() if since < until]


def _shut(connections: Iterable[socket.socket]) -> None:
    """Ends connections. Their threads see that, and close them."""
    for connection in connections:
        with suppress(OSError):  # the thread was faster
            connection.shutdown(socket.SHUT_RDWR)
