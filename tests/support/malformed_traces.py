"""Shared by the tests of damaged files: ways to break every event of a trace."""

import json
import re
from collections.abc import Iterable
from typing import Any

MALFORMATIONS = {
    "bare quotes": (rb'"name": "', rb'"name": "say "x" '),
    "one bare quote": (rb'"name": "', rb'"name": "5" '),
    "bare backslash": (rb'"name": "', rb'"name": "C:\\q '),
    "control character": (rb'"name": "', b'"name": "\x01'),
    "line break": (rb'"name": "', b'"name": "\n'),
    "bytes that are not UTF-8": (rb'"name": "', b'"name": "\xff\xe2\x82'),
    "half of a character": (rb'"name": "', rb'"name": "\\uD83D'),
    "NaN in a field": (rb'"pid":', rb'"loss": NaN, "pid":'),
    "infinity in the args": (rb'"args": \{', rb'"args": {"loss": [{"a": -Infinity}], '),
    "NaN for a time": (rb'"ts": [^,}]+', rb'"ts": NaN'),
    "a time that is a string": (rb'"ts": ([0-9.]+)', rb'"ts": "\1"'),
    "comma behind the last field": (rb"\s*\}$", rb",\g<0>"),
    "commas missing between fields": (rb',(\s*"(?:name|tid|args)")', rb" \1"),
    "two commas": (rb',(\s*")', rb",,\1"),
    "string without its end": (rb'("name": "[^"]*)"', rb"\1"),
    "no closing brace": (rb"\}$", rb""),
    "field without a value": (rb'"dur": [^,}]+', rb'"dur": '),
    "key without quotes": (rb'"name":', rb"name:"),
    "field that comes twice": (rb'"name":', rb'"name": "x", "name":'),
    "garbage before it": (rb"^\{", b"}\x00{"),
}
"""Texts of an event as `json.dumps` writes it, and their replacements."""


def break_event(event: Any, kind: str, *, indent: int | None = 2) -> bytes:
    """Return the text of an event, broken in one of the ways, or unchanged if that way does not exist."""
    text = json.dumps(event, indent=indent).encode()
    return re.sub(*MALFORMATIONS[kind], text) if kind in MALFORMATIONS else text


def malformed_trace(events: Iterable[bytes]) -> bytes:
    """Return a trace of these events."""
    return b'{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [\n' + b",\n".join(events) + b"\n]}"
