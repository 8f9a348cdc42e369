"""Redaction without a user's function: users' names become numbers, and those of torch and Kinetoscope are kept.

The same name is always replaced by the same. Numbers follow the order in which names occur, so that outputs do not
depend on the names themselves.
"""

import re
from typing import Any

from kinetoscope.core.paths.short_paths import shorten_paths
from kinetoscope.formats.chrome import Event
from kinetoscope.formats.field_owners import (
    COUNTERS,
    DEVICES,
    OTHER_NAMES,
    RECORDED_CATEGORIES,
    TORCH_CATEGORIES,
    Field,
    field_of_name,
    field_of_value,
    is_known_key,
)
from kinetoscope.formats.sentence_redaction import redact_sentence
from kinetoscope.formats.torch_names import has_kernel_form, redact_kernel
from kinetoscope.formats.trace_redaction import TraceRedactor, describes_track

_FRAME = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)
_LINE = re.compile(r"(.+):(\d+)", re.DOTALL)
_STEP = re.compile(r"[ #_]?\d{1,18}|")
_PREFIXES = re.compile(
    r"(Optimizer\.\w+#|enumerate\(DataLoader\)#|nn\.Module: |compile/|memory holder |float64 "
    r"|(?:DataLoader worker \d+: )?samples of )(.+)",
    re.DOTALL,
)
_OTHER_THREAD = re.compile(r"(waits: GIL, )(.+)( ran)", re.DOTALL)
_OPEN_CATEGORIES = frozenset(
    (
        *("compile", "memory_holder", "float64", "stack_sample", "module"),
        *("python_function", "user_annotation", "gpu_user_annotation", "cpu_op", "Operator"),
    )
)
"""Categories whose events have a user's name after a known prefix, or within a frame."""
_LIBRARY = re.compile(r"(?:^|.*/)(?:site|dist)-packages/", re.DOTALL)
_PLAIN_LIBRARY = re.compile(r"(?:contextlib|copy|functools|runpy|threading)\.py")
_TORCH = "torch/"
STEP = "step"
"""The replacement of the name of the spans that `--step` names."""


class Anonymizer(TraceRedactor):
    """Replace the names of users in traces and in what else belongs to a run.

    Args:
        step: The name of the spans that are steps, if the user has passed one.
    """

    def __init__(self, step: str | None = None) -> None:
        super().__init__(self.name)
        self._step = step
        self._written: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def name(self, text: str, noun: str = "name") -> str:
        """Return ``noun`` and the number of a name."""
        if not text:
            return text
        if (noun, text) not in self._written:
            self._counts[noun] = self._counts.get(noun, 0) + 1
            self._written[noun, text] = f"{noun} {self._counts[noun]}"
        return self._written[noun, text]

    def sentence(self, text: str) -> str:
        """Return a sentence of Kinetoscope without its values; a placeholder for any other."""
        return redact_sentence(text)

    def text(self, key: str, text: str) -> str:
        """Return a string of an argument, or of a field of the header, redacted."""
        return self._text(key, text)

    def line(self, text: str) -> str:
        """Return a line of source, as ``file:line``, without the name of the file."""
        match = _LINE.fullmatch(text)
        return f"{self.file(match[1])}:{match[2]}" if match else self.file(text)

    def file(self, path: str) -> str:
        """Return a path without its names; it is still known whether it is in a library."""
        path = shorten_paths(path) if _LIBRARY.match(path) is None else path
        if (rest := _LIBRARY.sub("", path)).startswith(_TORCH) and field_of_value("library").is_known(f"{rest}(1): x"):
            return rest
        if _PLAIN_LIBRARY.fullmatch(path):
            return path
        prefix = "site-packages/" if _LIBRARY.match(path) else ""
        suffix = next((suffix for suffix in (".py", ".ipynb") if path.endswith(suffix)), "")
        return f"{prefix}{self.name(path, 'file')}{suffix}"

    def frame(self, text: str) -> str:
        """Return a frame of Python, as ``file(line): function``, without names of users."""
        match = _FRAME.fullmatch(text)
        if match is None:
            return self.name(text, "function")
        file = self.file(match[1])
        if file.startswith(_TORCH):
            return f"{file}({match[2]}): {match[3]}"
        return f"{file}({match[2]}): {self.name(match[3], 'function')}"

    def category_of(self, event: Event) -> str:
        """Return the categories of an event, redacted."""
        categories, name = _categories(event), event.get("name")
        is_known = any(map(_OPEN_CATEGORIES.__contains__, categories)) or (
            isinstance(name, str) and field_of_name(_phase(event), categories).is_known(name)
        )
        return ",".join([self._one_category(one, is_known=is_known) for one in categories])

    def name_of(self, event: Event) -> str:
        """Return the name of an event, redacted."""
        name = event["name"]
        if event.get("ph") == "M":
            return name if describes_track(event) else self.name(name)
        if self._step is not None and name.startswith(self._step) and _STEP.fullmatch(name[len(self._step) :]):
            return STEP + name[len(self._step) :]
        categories = _categories(event)
        field = field_of_name(_phase(event), categories)
        if field.is_known(name):
            return name
        if has_kernel_form(name) and (field.noun == "kernel" or field is OTHER_NAMES):
            kept = redact_kernel(name, self._type)
            return self.name(name, field.noun) if kept == self._type(name) else kept
        if field.noun == "function":
            return self.frame(name)
        if field.is_dotted:
            return ".".join(part if part.isdecimal() else self.name(part, field.noun) for part in name.split("."))
        if match := _OTHER_THREAD.fullmatch(name) if "state" in categories else None:
            return f"{match[1]}{self.name(match[2])}{match[3]}"
        match = _PREFIXES.fullmatch(name)
        if match and (not categories or _OPEN_CATEGORIES.intersection(categories)):
            return match[1] + self.name(match[2])
        return self.name(name, field.noun)

    def arguments_of(self, event: Event) -> dict[str, Any]:
        """Return the arguments of an event; the series of our own counters keep their names."""
        members, name = event["args"], event.get("name")
        field = field_of_name(_phase(event), _categories(event))
        if field is COUNTERS and isinstance(name, str) and field.is_known(name):
            return {key: value for key, value in members.items() if not isinstance(value, str)}
        return self.arguments(members)

    def arguments(self, members: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of an event, or fields of a header, with the strings of users replaced."""
        redacted = super().arguments(members)
        if isinstance(devices := members.get("deviceProperties"), list):
            for device, written in zip(devices, redacted["deviceProperties"], strict=True):
                if isinstance(device, dict) and isinstance(device.get("name"), str):
                    written["name"] = self._plain(DEVICES, device["name"])
        return redacted

    def _key(self, key: str) -> str:
        return key if is_known_key(key) else self.name(key, "argument")

    def _text(self, key: str, text: str) -> str:
        field = field_of_value(key)
        if field.is_sentence:
            return self.sentence(text)
        if key == "Call stack":
            return ";".join(self._framed(field, frame) for frame in text.split(";"))
        if field.is_path:
            return self.line(text)
        if field.noun == "function":
            return self._framed(field, text)
        if match := _PREFIXES.fullmatch(text) if field.noun == "track" else None:
            return match[1] + (match[2] if field.is_known(match[2]) else self.name(match[2]))
        return self._plain(field, text)

    def _category(self, event: Event, category: str) -> str:
        return self.category_of(event)

    def _name(self, event: Event, name: str) -> str:
        return self.name_of(event)

    def _arguments(self, event: Event, members: dict[str, Any]) -> dict[str, Any]:
        return self.arguments_of(event)

    def _one_category(self, category: str, *, is_known: bool) -> str:
        is_kept = category in TORCH_CATEGORIES or category == "marker" or (is_known and category in RECORDED_CATEGORIES)
        return category if is_kept else self.name(category, "category")

    def _framed(self, field: Field, text: str) -> str:
        return text if field.is_known(text) else self.frame(text)

    def _plain(self, field: Field, text: str) -> str:
        return text if field.is_known(text) else self.name(text, field.noun)

    def _type(self, identifier: str) -> str:
        return self.name(identifier, "type")


def _categories(event: Event) -> list[str]:
    category = event.get("cat")
    return category.split(",") if isinstance(category, str) and category else []


def _phase(event: Event) -> str:
    return str(event.get("ph", ""))
