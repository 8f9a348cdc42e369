"""Journals: files of one JSON struct per line, which a process appends to until it ends or is killed.

A journal with several kinds of entries is read as a union of tagged structs.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.struct_json import decode_struct

_OF_RANK = re.compile(r"rank(0|[1-9][0-9]{0,8})\.jsonl")
_MAX_BYTES = 64 << 20


def append_line(folder: RunFolder, name: str, line: bytes) -> None:
    """Append an encoded entry in one write, so that a reader sees all of it or nothing.

    If a process died in the middle of a line, that line is ended first. Raises OSError, on a full disk for instance.
    """
    with folder.open(name, "ab+") as stream:
        text = _end_of_torn_line(stream) + line + b"\n"
        if stream.write(text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.path / name))


def _end_of_torn_line(stream: BinaryIO) -> bytes:
    if stream.seek(0, os.SEEK_END) == 0:
        return b""
    stream.seek(-1, os.SEEK_END)
    return b"" if stream.read(1) == b"\n" else b"\n"


def read_journal(
    folder: RunFolder,
    name: str,
    kind: Any,
    on_damage: Callable[[int, Exception], None] | None = None,
    *,
    max_bytes: int = _MAX_BYTES,
) -> Iterator[Any]:
    """Yield the entries of a journal, which are of the type or union ``kind``.

    Other lines are left out and passed to ``on_damage`` with their numbers, which count from 1, except for a last line
    that its process has not finished. Raises OSError if the journal cannot be read.
    """
    *lines, last = folder.read(name, max_bytes).split(b"\n")
    for number, line in enumerate([*lines, last] if last else lines, 1):
        try:
            yield decode_struct(line, kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if on_damage is not None and number <= len(lines):
                on_damage(number, error)


def journals_of_ranks(folder: RunFolder, place: str) -> dict[int, str]:
    """Return the names of the journals in the folder ``place`` by rank. Raises OSError if it cannot be listed."""
    found = (_OF_RANK.fullmatch(name) for name in folder.names(place))
    return {int(match[1]): f"{place}/{match[0]}" for match in found if match}


def journal_of_rank(place: str, rank: int) -> str:
    """Return the name of the journal of a rank in the folder ``place``."""
    return f"{place}/rank{rank}.jsonl"
