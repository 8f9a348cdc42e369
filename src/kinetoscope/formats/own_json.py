"""formats: our own small files as JSON. Structs flow in and bytes out, and back; texts in them may be paths that are no
UTF-8, which Python has with lone surrogates in them.
"""

import json
from typing import Any

import msgspec


def encode_struct(struct: msgspec.Struct) -> bytes:
    """The struct as JSON, on one line."""
    try:
        return msgspec.json.encode(struct)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(struct)).encode()  # which writes a lone surrogate as \udcXX


def decode_struct(text: bytes, kind: Any) -> Any:
    """The struct of this ``kind`` that the JSON says. Raises `msgspec.MsgspecError` or UnicodeDecodeError if it says
    none, and RecursionError if it is nested too deeply."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        if b"\\udc" not in text:
            raise
    try:
        return msgspec.convert(json.loads(text, parse_constant=_refuse), kind)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number in JSON")
