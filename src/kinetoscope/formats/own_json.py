"""Reads and writes our own small files: structs as JSON, in files of their own or appended line by line.

Texts in them may be paths that are not UTF-8: Python holds these as strings with lone surrogates.
"""

import errno
import json
import os
from typing import Any, BinaryIO

import msgspec

from kinetoscope.paths.run_folder import RunFolder

_NOT_OF_MSGSPEC = (b"\\udc", b"NaN", b"Infinity")


def encode_struct(struct: msgspec.Struct) -> bytes:
    """The struct as JSON, on one line."""
    try:
        return msgspec.json.encode(struct)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(struct)).encode()  # it writes a lone surrogate as \udcXX


def decode_struct(text: bytes, kind: Any) -> Any:
    """The struct of this ``kind`` in the JSON. Raises `msgspec.MsgspecError` or UnicodeDecodeError if there is none,
    RecursionError if it is nested too deeply."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        if not any(special in text for special in _NOT_OF_MSGSPEC):
            raise
    try:
        msgspec.convert(json.loads(text), kind)  # first, since its error names the field that is NaN
        return msgspec.convert(json.loads(text, parse_constant=_refuse), kind)
    except msgspec.ValidationError:
        raise
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number in JSON")


def append_line(folder: RunFolder, name: str, line: bytes) -> None:
    """Appends a line to a file in ``folder`` in one write, so that a reader sees all of it or nothing.

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
