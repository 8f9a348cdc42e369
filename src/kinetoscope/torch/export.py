"""torch: finished results to a Chrome trace file. What Kineto saved flows in; a valid file flows out.

Kineto's file is copied as it is, with our header, when it is valid as it stands. Otherwise the events are read,
repaired and written anew (`repair`).
"""

import json
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.writing.atomic_file import atomic_file, make_folder

_EVENTS = b'\n    "traceEvents": [\n'
_END = b'],"traceName"'
_BACKSLASH_AT_END = b'\\\\"'  # Perfetto would lose the trace; `ChromeWriter` knows how to write it
# Kineto's traceName is the path of the file it saved, which was a temporary one of ours.
_NOT_OURS = ("traceEvents", "traceName")
_COPY_BYTES = 4 << 20


class KinetoFile:
    """What Kineto saved, which it does only once: an unnamed file that lives as long as this object.

    ``folder`` is where it is laid down, since there is room for it where its copy will go. ``raw_names`` are those
    that Kineto writes without escaping their quotes, which is made good here.
    """

    def __init__(self, kineto_results: Any, folder: Path, raw_names: Iterable[str] = ()) -> None:
        make_folder(folder)
        number, name = tempfile.mkstemp(prefix=".kineto-", suffix=".json", dir=folder)
        os.close(number)
        try:
            kineto_results.save(name)
            self._open(os.open(name, os.O_RDONLY), folder)
        finally:
            os.unlink(name)
        for raw_name in raw_names:
            self._escape(raw_name, folder)

    @property
    def path(self) -> Path:
        """A path that opens the file, although it has no name; for readers that want one."""
        os.lseek(self._number, 0, os.SEEK_SET)  # where /dev/fd is a duplicate of it, the two share the position
        return Path(f"/dev/fd/{self._number}")

    def _open(self, number: int, folder: Path) -> None:
        self._number = number
        weakref.finalize(self, os.close, number)
        if os.fstat(number).st_size == 0:
            raise TraceFileError(f"Kineto saved nothing in {folder}. Look whether its disk is full.")
        self.content = mmap.mmap(number, 0, access=mmap.ACCESS_READ)

    def _escape(self, raw_name: str, folder: Path) -> None:
        # Kineto gives each field a line, and a name no line breaks: so the line is found for certain.
        raw, escaped = f'"name": "{raw_name}",\n', f'"name": {json.dumps(raw_name)},\n'
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(self.content[:].replace(raw.encode(), escaped.encode()))
            stream.flush()
            self._open(os.dup(stream.fileno()), folder)


@dataclass(frozen=True, slots=True)
class TraceParts:
    """Where in a valid Kineto file its header ends and its events do."""

    header: dict[str, Any]
    events_begin: int
    events_end: int


def split_valid(content: mmap.mmap) -> TraceParts | None:
    """The parts of Kineto's file, or None if it is no JSON that every viewer reads."""
    begin, end = content.find(_EVENTS), content.rfind(_END)
    if begin < 0 or end < begin or content.find(_BACKSLASH_AT_END) >= 0 or not _is_json(content):
        return None
    begin += len(_EVENTS)
    header = json.loads(content[:begin] + b"]}")
    for name in _NOT_OURS:
        header.pop(name, None)
    return TraceParts(header, begin, end)


def copy_trace(content: mmap.mmap, parts: TraceParts, path: Path, additions: Mapping[str, Any]) -> None:
    """Writes ``path`` with the events as Kineto saved them, under its header with ``additions``."""
    header = json.dumps(parts.header | dict(additions), indent=2).removesuffix("\n}")
    with trace_stream(path) as stream:
        stream.write(header.encode() + b',\n  "traceEvents": [')
        for offset in range(parts.events_begin, parts.events_end, _COPY_BYTES):
            stream.write(content[offset : min(offset + _COPY_BYTES, parts.events_end)])
        stream.write(b"]\n}\n")


@contextmanager
def trace_stream(path: Path) -> Iterator[BinaryIO]:
    """A stream that becomes ``path`` when all went well; compressed when its name ends in ``.gz``."""
    with atomic_file(path) as stream, compressed_by_name(stream, path) as packed:
        yield packed


def _is_json(content: mmap.mmap) -> bool:
    """Whether it is valid JSON in ASCII, which Kineto's files are unless a string in them is odd."""
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return all(content[at : at + _COPY_BYTES].isascii() for at in range(0, len(content), _COPY_BYTES))
