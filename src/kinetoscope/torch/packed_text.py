"""torch: a long text in memory, packed. Pieces flow in once, and out any number of times; so does a file of them.

Each piece is packed by itself. So a line of the text is found again without unpacking all of it, a piece that
changes is packed again alone, and a ``.gz`` file holds them as they are.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from kinetoscope.formats.compression import Block, compressed_by_name, pack_block, write_gzip
from kinetoscope.writing.atomic_file import atomic_file

SEPARATOR = b",\n"  # between lines, none of which holds a line break


@dataclass(slots=True)
class PackedText:
    """Pieces of a text. Where its lines matter, each piece is of whole ones, every line after a separator or at the
    text's begin.
    """

    _blocks: list[Block] = field(default_factory=list)

    def add(self, piece: bytes | memoryview) -> None:
        """Puts ``piece`` behind what there is."""
        if piece:
            self._blocks.append(pack_block(piece))

    def pieces(self) -> Iterator[bytes]:
        """The text again, piece by piece."""
        return (block.unpack() for block in self._blocks)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def lines_at(self, places: Iterable[int]) -> Iterator[bytes]:
        """The lines that begin at the ``places``, in bytes from the text's begin and in order."""
        begins, number, piece = self._begins(), -1, b""
        for place in places:
            holder = bisect_right(begins, place) - 1
            if holder != number:
                number, piece = holder, self._blocks[holder].unpack()
            yield piece[place - begins[holder] : _end_of_line(piece, place - begins[holder])]

    def with_lines(self, changed: Mapping[int, bytes]) -> "PackedText":
        """The text with other lines at the places that are the keys."""
        by_block: dict[int, dict[int, bytes]] = {}
        begins = self._begins()
        for place, line in changed.items():
            holder = bisect_right(begins, place) - 1
            by_block.setdefault(holder, {})[place - begins[holder]] = line
        blocks = list(self._blocks)
        for number, lines in by_block.items():
            blocks[number] = pack_block(_replaced(blocks[number].unpack(), lines))
        return PackedText(blocks)

    def save(self, path: Path, before: bytes, after: bytes) -> None:
        """Writes the file ``path``, with more text before and after, packed as its name says."""
        with atomic_file(path) as stream:
            if path.name.endswith(".gz"):
                write_gzip(stream, [pack_block(before), *self._blocks, pack_block(after)])
                return
            with compressed_by_name(stream, path) as packed:
                for piece in (before, *self.pieces(), after):
                    packed.write(piece)

    def _begins(self) -> list[int]:
        return list(accumulate((block.num_bytes for block in self._blocks), initial=0))[:-1]


def _end_of_line(piece: bytes, begin: int) -> int:
    end = piece.find(SEPARATOR, begin)
    return len(piece) if end < 0 else end


def _replaced(piece: bytes, lines: Mapping[int, bytes]) -> bytes:
    parts: list[bytes] = []
    done = 0
    for begin, line in sorted(lines.items()):
        parts += [piece[done:begin], line]
        done = _end_of_line(piece, begin)
    return b"".join([*parts, piece[done:]])
