"""formats: gzip and zstandard. Files flow in and bytes out, unpacked; bytes flow out packed as the name says."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from isal import igzip, isal_zlib
from isal.igzip_lib import IsalError

from kinetoscope.errors import SettingsError

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL = 1  # measured on the same 152 MB: 0.24 s and 14.4 times smaller
_GZIP_WINDOW = 31  # zlib's way to say: a gzip header and trailer around the largest window
# isal's stubs declare its error as an instance.
_GZIP_ERROR = cast("type[Exception]", IsalError)
_PIECE_BYTES = 1 << 20  # what a damaged spot may cost, at most
_LEVEL = 2  # measured on 152 MB of Kineto JSON: 0.13 s and 10.9 times smaller; gzip at level 9 took 8 s


def read_unpacked(path: str | os.PathLike[str]) -> tuple[bytes, str]:
    """The content of a file, unpacked if it is gzip or zstandard, and a sentence about damage to it ("" for none).

    A stream that ends too early gives what it held up to there. Raises OSError when the file cannot be read.
    """
    content = Path(path).read_bytes()
    if content.startswith(_ZSTD_MAGIC):
        return _unpack_zstandard(content, os.fspath(path))
    if not content.startswith(_GZIP_MAGIC):
        return content, ""
    unpacked = bytearray()
    damage = ""
    while content.startswith(_GZIP_MAGIC) and not damage:
        content, damage = _unpack_member(content, unpacked)
    return bytes(unpacked), damage


def _unpack_member(content: bytes, unpacked: bytearray) -> tuple[bytes, str]:
    """Adds one gzip member to ``unpacked``; returns what follows it, and what was wrong with it."""
    unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    for start in range(0, len(content), _PIECE_BYTES):
        try:
            unpacked += unpacker.decompress(content[start : start + _PIECE_BYTES])
        except _GZIP_ERROR as error:
            return b"", f"The gzip data is damaged ({error})."
        if unpacker.eof:
            return unpacker.unused_data + content[start + _PIECE_BYTES :], ""
    return b"", "The gzip data ends too early."


class UnpackedStream:
    """A file, read piece by piece, unpacked if it is gzip or zstandard; memory stays flat, however much is in it.

    A packed stream that is damaged or ends too early gives what it held up to there, and ``damage`` then says so.
    ``position`` is how far the file itself was read, in bytes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        self.damage = ""
        self._zstandard_error: type[Exception] = OSError
        magic = self._file.read(4)
        self._file.seek(0)
        if magic.startswith(_GZIP_MAGIC):
            self._unpack = self._read_gzip
            self._packed, self._unpacker = b"", isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        elif magic.startswith(_ZSTD_MAGIC):
            zstandard = _zstandard(os.fspath(path))
            self._zstandard_error = zstandard.ZstdError
            self._frames = zstandard.ZstdDecompressor().stream_reader(self._file, read_across_frames=True)
            self._unpack = self._read_zstandard
        else:
            self._unpack = self._file.readinto

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def position(self) -> int:
        """How many bytes of the file were read."""
        return self._file.tell()

    def read_into(self, room: memoryview) -> int:
        """Fills the beginning of ``room``; how many bytes it got, 0 at the end. Raises OSError."""
        return self._unpack(room) or 0

    def _read_gzip(self, room: memoryview) -> int:
        while not self.damage:
            if self._unpacker.eof and not self._next_member():
                return 0
            packed = self._packed or self._file.read(_PIECE_BYTES)
            try:
                piece = self._unpacker.decompress(packed, len(room))
            except _GZIP_ERROR as error:
                self.damage = f"The gzip data is damaged ({error})."
                return 0
            self._packed = self._unpacker.unconsumed_tail
            if piece:
                room[: len(piece)] = piece
                return len(piece)
            if not packed and not self._unpacker.eof:
                self.damage = "The gzip data ends too early."
        return 0

    def _next_member(self) -> bool:
        following = self._unpacker.unused_data + self._packed
        following += self._file.read(_PIECE_BYTES) if len(following) < len(_GZIP_MAGIC) else b""
        self._packed, self._unpacker = following, isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        return following.startswith(_GZIP_MAGIC)

    def _read_zstandard(self, room: memoryview) -> int:
        try:
            return self._frames.readinto(room)
        except self._zstandard_error as error:
            self.damage = f"The zstandard data is damaged ({error})."
            return 0


@contextmanager
def compressed_by_name(stream: BinaryIO, path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream to write the content of ``path`` to: it packs on the way into ``stream`` if the name says so.

    ``.gz`` is gzip, ``.zst`` zstandard, for which Python before 3.14 needs a package: `SettingsError` says which.
    ``stream`` itself stays open; it is complete when the block ends.
    """
    name = os.fspath(path)
    if name.endswith(".zst"):
        with _zstandard(name).ZstdCompressor(level=_ZSTD_LEVEL).stream_writer(stream, closefd=False) as packed:
            yield packed
        return
    if not name.endswith(".gz"):
        yield stream
        return
    with igzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=stream, mtime=0) as packed:
        yield cast("BinaryIO", packed)


def _unpack_zstandard(content: bytes, name: str) -> tuple[bytes, str]:
    zstandard = _zstandard(name)
    unpacked = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True) as reader:
            while piece := reader.read(_PIECE_BYTES):
                unpacked += piece
    except zstandard.ZstdError as error:
        return bytes(unpacked), f"The zstandard data is damaged ({error})."
    return bytes(unpacked), ""


def _zstandard(name: str) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise SettingsError(
            f"Cannot read or write {name}: it is zstandard, which needs a package: pip install 'kinetoscope[zstd]'. "
            "Or let the name end in .gz."
        ) from error
    return zstandard
