"""JSON of the structs in Kinetoscope's small files.

Strings in them may be paths that are not UTF-8, which Python represents with lone surrogates.
"""

import json
from typing import Any

import msgspec

_NOT_FOR_MSGSPEC = (b"\\udc", b"NaN", b"Infinity")


def encode_struct(struct: msgspec.Struct) -> bytes:
    """Return the struct as JSON, on one line."""
    try:
        return msgspec.json.encode(struct)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(struct)).encode()  # it writes a lone surrogate as \udcXX


def decode_struct(text: bytes, kind: Any) -> Any:
    """Parse the struct of this ``kind`` from JSON.

    Raises `msgspec.MsgspecError` or UnicodeDecodeError if there is none, RecursionError if it is nested too deeply.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        if not any(special in text for special in _NOT_FOR_MSGSPEC):
            raise
    try:
        msgspec.convert(json.loads(text), kind)  # first, since its error names the field that is NaN
        return msgspec.convert(json.loads(text, parse_constant=_reject_constant), kind)
    except msgspec.ValidationError:
        raise
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a number in JSON")
