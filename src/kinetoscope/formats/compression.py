"""Gzip and zstandard files; for writing, the name of the file decides."""

import importlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from isal import igzip, isal_zlib
from isal.igzip_lib import IsalError

from kinetoscope.core.paths.run_folder import open_file
from kinetoscope.errors import SettingsError

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL = 1  # measured on 152 MB of Kineto JSON: 0.24 s and 14.4 times smaller
_WINDOW = 15
_GZIP_WINDOW = 16 + _WINDOW  # zlib's code for gzip: header and trailer around the largest window
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # deflate; no name, no time, no system
_END_OF_STREAM = b"\x03\0"  # an empty last block of a deflate stream
try:
    _in_python: Any = importlib.import_module("compression.zstd")
except ImportError:  # before CPython 3.14, or built without it
    _in_python = None
# isal's stubs declare its error as an instance.
_GZIP_ERROR = cast("type[Exception]", IsalError)
_PIECE_BYTES = 1 << 20  # as much may be lost at a damaged spot
_PACKED_PIECE_BYTES = 1 << 18
# A decompression bomb grows to over a thousand times its size; traces grow to ten or twenty times.
_BOMB_BYTES = 1 << 28
_BOMB_RATIO = 400
# So many zeros in a row are what a power cut left, or a hole in a file, which may seem to have a terabyte.
_HOLE_BYTES = 1 << 24
_LEVEL = 2  # measured on 152 MB of Kineto JSON: 0.13 s and 10.9 times smaller; gzip at level 9 took 8 s


def is_packed(beginning: bytes) -> bool:
    """Return whether data with this beginning is gzip or zstandard."""
    return beginning.startswith((_GZIP_MAGIC, _ZSTD_MAGIC))


def read_unpacked(path: str | os.PathLike[str]) -> tuple[bytes, str]:
    """Return the decompressed content of a file, and a sentence about damage ("" for none).

    Of a file that ends too early, everything up to its end is returned. Raises OSError when the file cannot be read.
    """
    unpacked, buffer = bytearray(), memoryview(bytearray(_PIECE_BYTES))
    with open_file(path) as file:
        stream = UnpackedStream(file, os.fspath(path))
        while num_bytes := stream.readinto(buffer):
            unpacked += buffer[:num_bytes]
    return bytes(unpacked), stream.damage


class UnpackedStream:
    """A stream that is decompressed while it is read, if it is gzip or zstandard, in constant memory.

    ``damage`` is a sentence about damage so far; "" for none. The content ends at the damage, where compressed data has
    grown more than any trace does, or after megabytes of zeros.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.damage = ""
        self.num_bytes = 0
        self._num_zeros = 0
        self._packed = _Packed(stream)
        magic = self._packed.peek()
        self._read: Callable[[int], bytes] | None = None  # None if the stream is not compressed
        if magic.startswith(_GZIP_MAGIC):
            self._read = _gzip_reader(self._packed)
        elif magic.startswith(_ZSTD_MAGIC):
            self._read = _zstandard_reader(self._packed, name)

    @property
    def num_packed(self) -> int:
        """The number of bytes of the stream that were read so far."""
        return self._packed.num_bytes

    def readinto(self, into: memoryview) -> int:
        """Fill ``into`` from its beginning, as far as there is content; return the number of bytes."""
        if self._read is None:
            return self._read_plain(into)
        filled = 0
        while filled < len(into) and not self.damage:
            piece = self._read_piece(min(_PIECE_BYTES, len(into) - filled))
            if not piece:
                break
            into[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled

    def _read_plain(self, into: memoryview) -> int:
        filled = 0 if self.damage else self._packed.readinto(into)
        self._num_zeros = self._num_zeros + filled if _is_zeros(into[:filled]) else 0
        if self._num_zeros < _HOLE_BYTES:
            return filled
        mb = _HOLE_BYTES >> 20
        self.damage = f"It has over {mb} MB of zeros in a row, which no trace has; the rest was not read."
        return 0

    def _read_piece(self, max_bytes: int) -> bytes:
        try:
            piece = self._read(max_bytes) if self._read is not None else b""
        except _DamagedError as error:
            self.damage = str(error)
            return b""
        self.num_bytes += len(piece)
        if self.num_bytes > max(_BOMB_BYTES, _BOMB_RATIO * self._packed.num_bytes):
            self.damage = f"It grows to over {_BOMB_RATIO} times its size, which no trace does; the rest was not read."
        return piece


def _is_zeros(piece: memoryview) -> bool:
    return len(piece) > 0 and piece[0] == 0 and not bytes(piece).strip(b"\0")


class _DamagedError(Exception):
    """The compressed data cannot be read any further."""


class _Packed:
    """A compressed stream with a look-ahead."""

    def __init__(self, stream: BinaryIO) -> None:
        self.num_bytes = 0
        self._stream = stream
        self._ahead = b""

    def peek(self) -> bytes:
        """Return the next bytes, without consuming them; b"" at the end."""
        self._ahead = self._ahead or self._stream.read(_PACKED_PIECE_BYTES)
        return self._ahead

    def read(self, max_bytes: int = _PACKED_PIECE_BYTES) -> bytes:
        """Return the next bytes, at most ``max_bytes``; b"" at the end."""
        piece = self._ahead[:max_bytes] if self._ahead else self._stream.read(max_bytes)
        self._ahead = self._ahead[len(piece) :]
        self.num_bytes += len(piece)
        return piece

    def readinto(self, into: memoryview) -> int:
        """Fill ``into`` as far as there is data."""
        ahead = self.read(len(into)) if self._ahead else b""
        into[: len(ahead)] = ahead
        filled = len(ahead)
        while filled < len(into):
            with into[filled:] as buffer:
                num_read = self._stream.readinto(buffer)  # type: ignore[attr-defined] - every binary stream has it
            if not num_read:
                break
            filled += num_read
        self.num_bytes += filled - len(ahead)
        return filled

    def unread(self, piece: bytes) -> None:
        """Push back bytes, which are read again next."""
        self.num_bytes -= len(piece)
        self._ahead = piece + self._ahead


def _gzip_reader(packed: _Packed) -> Callable[[int], bytes]:
    unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)

    def read(max_bytes: int) -> bytes:
        nonlocal unpacker
        while True:
            if unpacker.eof:
                packed.unread(unpacker.unused_data)
                if not packed.peek().startswith(_GZIP_MAGIC):
                    return b""
                unpacker = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
            piece = unpacker.unconsumed_tail or packed.read()
            try:
                unpacked = unpacker.decompress(piece, max_bytes)
            except _GZIP_ERROR as error:
                raise _DamagedError(f"The gzip data is damaged ({error}).") from error
            if unpacked:
                return unpacked
            if not piece and not unpacker.eof:
                raise _DamagedError("The gzip data ends too early.")

    return read


def _zstandard_reader(packed: _Packed, name: str) -> Callable[[int], bytes]:
    zstandard = _zstandard(name)
    if zstandard is _in_python:
        read_some: Any = zstandard.ZstdFile(packed).read1  # `read` would lose what comes before damage
    else:
        read_some = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True, closefd=False).read

    def read(max_bytes: int) -> bytes:
        try:
            return read_some(max_bytes)
        except EOFError as error:
            raise _DamagedError("The zstandard data ends too early.") from error
        except zstandard.ZstdError as error:
            raise _DamagedError(f"The zstandard data is damaged ({error}).") from error

    return read


@contextmanager
def compressed_by_name(stream: BinaryIO, path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a stream for the content of ``path``, compressed into ``stream`` if the name requires it.

    ``.gz`` is gzip, ``.zst`` zstandard. The latter needs a package: `SettingsError` names it if it is missing.
    ``stream`` stays open; its content is complete when the block ends.
    """
    name = os.fspath(path)
    if name.endswith(".zst"):
        zstandard = _zstandard(name)
        if zstandard is _in_python:
            packing: Any = zstandard.ZstdFile(stream, "w", level=_ZSTD_LEVEL)
        else:
            packing = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).stream_writer(stream, closefd=False)
        with packing as packed:
            yield packed
        return
    if not name.endswith(".gz"):
        yield stream
        return
    with igzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=stream, mtime=0) as packed:
        yield cast("BinaryIO", packed)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of text, compressed so that it can be read by itself, and that several make up a gzip file."""

    packed: bytes
    crc: int
    num_bytes: int

    def unpack(self) -> bytes:
        """Return the piece."""
        return isal_zlib.decompressobj(wbits=-_WINDOW).decompress(self.packed)


def pack_block(piece: bytes | memoryview) -> Block:
    """Deflate ``piece`` to whole bytes, without references to earlier data."""
    packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, -_WINDOW)
    packed = packer.compress(piece) + packer.flush(isal_zlib.Z_FULL_FLUSH)
    return Block(packed, isal_zlib.crc32(piece), len(piece))


def write_gzip(stream: BinaryIO, blocks: Iterable[Block]) -> None:
    """Write a gzip file of one member with the pieces in order, without compressing them again."""
    crc = num_bytes = 0
    stream.write(_GZIP_HEADER)
    for block in blocks:
        stream.write(block.packed)
        crc = isal_zlib.crc32_combine(crc, block.crc, block.num_bytes)
        num_bytes += block.num_bytes
    stream.write(_END_OF_STREAM + struct.pack("<II", crc, num_bytes & 0xFFFFFFFF))


def _zstandard(name: str) -> Any:
    """Return the module that reads and writes zstandard: Python's own from 3.14 on, else the package."""
    if _in_python is not None:
        return _in_python
    try:
        import zstandard
    except ImportError as error:
        raise SettingsError(
            f"Cannot read or write {name}: it is zstandard, which needs a package: pip install 'kinetoscope[zstd]'. "
            "Or let the name end in .gz."
        ) from error
    return zstandard
