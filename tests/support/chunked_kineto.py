"""Kineto's text as a stream that arrives in pieces, as from Kineto's pipe."""

import contextlib
import socket
import threading


class ChunkedKineto:
    """A stream that returns ``text`` in pieces of ``num_bytes``, one piece per read."""

    def __init__(self, text: bytes, num_bytes: int = 1000) -> None:
        self.is_written = bytearray(b"\1")  # otherwise the reader would wait for more each time
        self._pieces = [text[at : at + num_bytes] for at in range(0, len(text), num_bytes)]
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threading.Thread(target=self._send, daemon=True).start()

    def fileno(self) -> int:
        return self._ours.fileno()

    def read(self) -> bytes:
        return self._ours.recv(1 << 20)

    def __del__(self) -> None:
        self._ours.close()

    def _send(self) -> None:
        with self._theirs, contextlib.suppress(OSError):
            for piece in self._pieces:
                self._theirs.send(piece)
