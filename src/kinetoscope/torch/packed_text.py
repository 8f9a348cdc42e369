"""torch: a long text in memory, packed. Pieces flow in once, and out any number of times."""

import io
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO, Self

from kinetoscope.formats.compression import compressed_by_name, open_unpacked

_PIECE_BYTES = 4 << 20


class PackedText:
    """A stream to write the text to; ``content`` is there when the block ends."""

    def __enter__(self) -> Self:
        self._buffer = io.BytesIO()
        self._open = ExitStack()
        self.stream: BinaryIO = self._open.enter_context(compressed_by_name(self._buffer, ".gz"))
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)
        self.content = self._buffer.getvalue()


def pieces_of(packed: bytes) -> Iterator[bytes]:
    """The text again, piece by piece."""
    with open_unpacked(packed) as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece
