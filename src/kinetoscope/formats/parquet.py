"""Size of an unpacked Parquet file, from its footer and its pages' headers, before anything is unpacked.

A file of a megabyte can hold a billion rows, because equal values cost nothing. The structs are Thrift's compact
protocol, as github.com/apache/parquet-format describes both.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from kinetoscope.core.text.wording import format_file_size
from kinetoscope.errors import TraceFileError

_MAGIC = b"PAR1"
_END_BYTES = 8  # the length of the footer, and the magic
_MAX_FOOTER_BYTES = 1 << 26
_MAX_HEADER_BYTES = 1 << 16
_MAX_VALUES = 1 << 21  # in one struct, with all that is in it
_MAX_DEPTH = 16
_BYTES_PER_VALUE = 8
# Measured on 2 million spans of one name, one after another, as small as a trace can get: 163 times their file.
_MAX_RATIO = 250
_MAX_SMALL_BYTES = 1 << 28

# The ids of fields, from parquet.thrift.
_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _ROWS_OF_GROUP = 1, 3
_COLUMN_METADATA = 3
_NUM_VALUES, _PACKED_BYTES, _FIRST_DATA_PAGE, _DICTIONARY_PAGE = 5, 7, 9, 11
_PAGE_BYTES, _PACKED_PAGE_BYTES, _PAGE_HEADERS = 2, 3, (5, 7, 8)
_VALUES_OF_PAGE = 1

_BYTE, _DOUBLE, _BINARY, _STRUCT, _UUID = 3, 7, 8, 12, 13
_TRUE, _FALSE, _LISTS, _MAP, _INTEGERS = 1, 2, (9, 10), 11, (4, 5, 6)


def require_reasonable_size(file: BinaryIO, name: str) -> None:
    """Raise `TraceFileError` for a Parquet file that is damaged or unpacks to far more than any trace."""
    try:
        size_bytes, unpacked_bytes = os.fstat(file.fileno()).st_size, _unpacked_bytes(file)
    except (_DamagedError, IndexError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise TraceFileError(
            f"Cannot read {name}: it is no Parquet file, or is damaged. Convert the trace again."
        ) from error
    if unpacked_bytes > max(_MAX_SMALL_BYTES, _MAX_RATIO * size_bytes):
        raise TraceFileError(
            f"Cannot read {name}: its {format_file_size(size_bytes)} would take over "
            f"{format_file_size(unpacked_bytes)} of memory, more than {_MAX_RATIO} times as much, which no trace "
            "does. Convert the trace again, or ask who made the file."
        )


class _DamagedError(Exception):
    """The structs are invalid."""


def _unpacked_bytes(file: BinaryIO) -> int:
    footer = _footer(file)
    groups = footer[_ROW_GROUPS]
    num_rows = max(footer[_NUM_ROWS], sum(group[_ROWS_OF_GROUP] for group in groups))
    total = 0
    for group in groups:
        for column in group[_COLUMNS]:
            chunk = column[_COLUMN_METADATA]
            pages = list(_pages(file, chunk))
            num_values = max(chunk[_NUM_VALUES], group[_ROWS_OF_GROUP], sum(page.num_values for page in pages))
            total += num_values * _BYTES_PER_VALUE + sum(page.num_bytes for page in pages)
    return max(total, num_rows * _BYTES_PER_VALUE)


def _footer(file: BinaryIO) -> dict[int, Any]:
    end = file.seek(0, os.SEEK_END)
    if end < len(_MAGIC) + _END_BYTES:
        raise _DamagedError
    num_bytes, magic = struct.unpack("<I4s", _read(file, end - _END_BYTES, _END_BYTES))
    if magic != _MAGIC or num_bytes > min(_MAX_FOOTER_BYTES, end - _END_BYTES):
        raise _DamagedError
    return _Structs(_read(file, end - _END_BYTES - num_bytes, num_bytes)).read()


@dataclass(frozen=True, slots=True)
class _Page:
    num_bytes: int
    num_values: int


def _pages(file: BinaryIO, chunk: dict[int, Any]) -> Iterator[_Page]:
    """Yield the pages of a column in one group of rows."""
    first = chunk[_FIRST_DATA_PAGE]
    at = min(first, chunk.get(_DICTIONARY_PAGE) or first)
    end = at + chunk[_PACKED_BYTES]
    while at < end:
        structs = _Structs(_read(file, at, _MAX_HEADER_BYTES))
        header = structs.read()
        of_kind = next((header[kind] for kind in _PAGE_HEADERS if kind in header), {})
        if header[_PACKED_PAGE_BYTES] < 0 or header[_PAGE_BYTES] < 0:
            raise _DamagedError
        yield _Page(header[_PAGE_BYTES], max(0, of_kind.get(_VALUES_OF_PAGE, 0)))
        at += structs.at + header[_PACKED_PAGE_BYTES]


def _read(file: BinaryIO, offset: int, num_bytes: int) -> bytes:
    if offset < 0:
        raise _DamagedError
    file.seek(offset)
    content = b""
    while len(content) < num_bytes and (piece := file.read(num_bytes - len(content))):
        content += piece
    return content


class _Structs:
    """A reader of structs of Thrift's compact protocol, as dicts of fields by id.

    Raises IndexError where the text ends.
    """

    def __init__(self, text: bytes) -> None:
        self.at = 0
        self._text = text
        self._num_left = _MAX_VALUES

    def read(self, depth: int = 0) -> dict[int, Any]:
        """Read the struct at the current position."""
        if depth > _MAX_DEPTH:
            raise _DamagedError
        fields: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            field = field + delta if delta else self._integer()
            fields[field] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        self._num_left -= 1
        if self._num_left < 0:
            raise _DamagedError
        if kind in _INTEGERS:
            return self._integer()
        if kind == _STRUCT:
            return self.read(depth + 1)
        if kind in _LISTS:
            return self._list(depth + 1)
        if kind == _MAP:
            return self._map(depth + 1)
        if kind in (_TRUE, _FALSE, _BYTE):  # of a list: there they have a byte each
            return self._byte()
        lengths = {_DOUBLE: 8, _UUID: 16}
        length = self._varint() if kind == _BINARY else lengths.get(kind)
        if length is None or self.at + length > len(self._text):
            raise _DamagedError
        self.at += length
        return None  # no needed field is text or a fraction

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        num_items = head >> 4 if head >> 4 < 15 else self._varint()
        return [self._item(head & 15, depth) for _ in range(num_items)]

    def _map(self, depth: int) -> None:
        num_items = self._varint()
        kinds = self._byte() if num_items else 0
        for _ in range(num_items):
            self._item(kinds >> 4, depth)
            self._item(kinds & 15, depth)

    def _item(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise _DamagedError
        return self._value(kind, depth)

    def _byte(self) -> int:
        self.at += 1
        return self._text[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise _DamagedError

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
