"""Redaction of a trace: each name and each string in its events and its header is replaced.

Kept are the parts that only define how to read the trace: phases, times, numbers, and the categories and argument names
of torch and Kinetoscope.
"""

import re
from collections.abc import Callable
from itertools import count
from typing import Any, BinaryIO

import msgspec

from kinetoscope.formats.chrome import ChromeTrace, ChromeWriter, Event, encode_line
from kinetoscope.formats.field_owners import KNOWN_CATEGORIES, KNOWN_KEYS

Replace = Callable[[str], str]
"""A function from a string to its replacement string."""

_FIELDS = frozenset(("ph", "name", "cat", "args", "pid", "tid", "ts", "dur", "tts", "tdur", "id", "id2", "bind_id"))
_FIELDS |= {"bp", "s", "scope", "flow_in", "flow_out"}
_ID_FIELDS = frozenset(("pid", "tid", "id", "id2", "bind_id", "scope"))
_CODES = frozenset(("ph", "s", "bp"))  # one letter for the kind of an event
_DESCRIPTIONS = frozenset(
    ("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index", "kinetoscope_header")
)
_DEVICE = re.compile(r"CPU|GPU \d+")
_NUMBER = re.compile(r"(stream )?-?\d+|0x[0-9A-Fa-f]+")
# Numbers with a fraction stay as they are written, with all their digits.
_DECODER = msgspec.json.Decoder(list[dict[str, Any]], float_hook=lambda digits: msgspec.Raw(digits.encode()))


class TraceRedactor:
    """Redact the events and the header of one trace; ``replace`` is called with each string.

    Strings that distinguish tracks or flows stay distinct, even if ``replace`` returns the same for them.
    """

    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._ids: dict[str, str] = {}
        self._used: dict[str, Any] = {}

    def header(self, header: dict[str, Any]) -> dict[str, Any]:
        """Return the header with all strings redacted."""
        redacted = self.arguments(header)
        if "displayTimeUnit" in header:
            redacted["displayTimeUnit"] = "ns" if header["displayTimeUnit"] == "ns" else "ms"
        return redacted

    def event(self, event: Event) -> Event:
        """Return the event with all strings redacted."""
        redacted: Event = {}
        for key, value in event.items():
            name = key if key in _FIELDS else unused_name(self._replace(key), redacted)
            redacted[name] = value if type(value) is int else self._field(event, key, value)
        return redacted

    def lines(self, lines: bytes) -> bytes:
        """Return events as text, with commas between them, in the same form."""
        events = _DECODER.decode(b"[" + lines + b"]")
        return b",\n".join([encode_line(self.event(event)) for event in events])

    def arguments(self, members: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of an event, or the fields of a header, with all strings redacted."""
        redacted: dict[str, Any] = {}
        for key, value in members.items():
            name = unused_name(self._key(key), redacted)
            redacted[name] = value if type(value) is int else self._value(key, value)
        return redacted

    def redact_id(self, value: Any) -> Any:
        """Return the replacement of a pid, a tid or an id; different ones stay different."""
        if isinstance(value, dict):
            return {key: self.redact_id(part) for key, part in value.items() if key in ("local", "global")}
        if not isinstance(value, str):
            return self._value("", value)
        if _NUMBER.fullmatch(value):
            return value
        if value not in self._ids:
            self._ids[value] = redact_id = unused_name(self._replace(value), self._used)
            self._used[redact_id] = value
        return self._ids[value]

    def _field(self, event: Event, key: str, value: Any) -> Any:
        if key in _ID_FIELDS:
            return self.redact_id(value)
        if key in _CODES and isinstance(value, str) and len(value) == 1:
            return value
        is_kept = event.get("ph") == "M" and describes_track(event) and (key == "name" or _is_device_label(value))
        if is_kept:
            return value
        if key in ("cat", "name") and isinstance(value, str):
            return self._category(event, value) if key == "cat" else self._name(event, value)
        if key == "args" and isinstance(value, dict):
            return self._arguments(event, value)
        return self._value(key, value)

    def _category(self, event: Event, category: str) -> str:
        return redact_categories(category, self._replace)

    def _name(self, event: Event, name: str) -> str:
        return self._replace(name)

    def _arguments(self, event: Event, members: dict[str, Any]) -> dict[str, Any]:
        return self.arguments(members)

    def _value(self, key: str, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(key, value)
        if kind is dict:
            return self.arguments(value)
        return [self._value(key, part) for part in value] if kind is list else value

    def _key(self, key: str) -> str:
        return key if key in KNOWN_KEYS else self._replace(key)

    def _text(self, key: str, text: str) -> str:
        """Return the replacement of a string in a field ``key``."""
        return self._replace(text)


def redact_categories(categories: str, replace: Replace) -> str:
    """Return the categories of an event, with commas between them; those of torch and Kinetoscope are kept."""
    if categories in KNOWN_CATEGORIES:
        return categories
    return ",".join(part if part in KNOWN_CATEGORIES else replace(part) for part in categories.split(","))


def write_redacted(trace: ChromeTrace, stream: BinaryIO, redactor: TraceRedactor) -> None:
    """Write a trace that was read, with all strings redacted."""
    with ChromeWriter(stream, base_ns=trace.base_ns, header=redactor.header(trace.header)) as writer:
        writer.write(map(redactor.event, trace.events))


def describes_track(event: Event) -> bool:
    """Return whether a metadata event names or orders processes and threads."""
    name = event.get("name")
    return isinstance(name, str) and name in _DESCRIPTIONS


def _is_device_label(args: Any) -> bool:
    """Return whether the args of a description only label a process as the CPU or a GPU."""
    return isinstance(args, dict) and len(args) == 1 and _DEVICE.fullmatch(str(args.get("labels"))) is not None


def unused_name(name: str, used: dict[str, Any]) -> str:
    """Return ``name``, or if it is used, the name and a number."""
    if name not in used:
        return name
    return next(other for number in count(len(used) + 1) if (other := f"{name} ({number})") not in used)
