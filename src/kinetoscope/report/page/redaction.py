"""report: what is written with ``--redact`` instead of names that users chose: of runs, hosts, files, code, markers."""

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kinetoscope.pages.page_data import PageData
from kinetoscope.report.page.names import is_known

_FRAME = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)
_LINE = re.compile(r"(.+):(\d+)", re.DOTALL)
_AFTER_ITS_KIND = re.compile(r"(Optimizer\.\w+#|enumerate\(DataLoader\)#|nn\.Module: )(.+)", re.DOTALL)
_FILE = re.compile(r"[^\s,;'\"()]+\.(?:json|gz|zst|parquet|py|ipynb|so|pt|txt|html)\b")
_SHORTEST_IN_SENTENCE = 3
_PLAIN_ARGUMENTS = frozenset(
    [
        "Input type",
        "Input Dims",
        "Input dims",
        "Input Strides",
        "dtype",
        "Collective name",
        "Group Ranks",
        "Group size",
        "backend",
    ]
)


def redacted(page: PageData) -> PageData:
    """The page without names that a user chose. The same name is always replaced by the same."""
    redaction = _Redaction()
    changed = replace(redaction.changed(page), title="A run")
    return redaction.with_sentences(changed)


class _Redaction:
    """Replaces texts in a page by what they are: the field that they are in tells."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._by_field = {"line": self._line, "lines": self._line, "host": self._host, "hosts": self._host}
        self._by_field |= dict.fromkeys(("name", "operator", "module", "group", "spans", "texts"), self._name)

    def changed(self, value: Any, field: str = "") -> Any:
        """A part of a page, in a field, without names in fields that have names."""
        if isinstance(value, str):
            change = self._by_field.get(field)
            return value if change is None else change(value)
        if isinstance(value, dict):
            if field == "details":
                return {key: self._argument(key, part) for key, part in value.items()}
            return {key: self._member(key, part, field) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.changed(part, field) for part in value]
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{own.name: self.changed(getattr(value, own.name), own.name) for own in fields(value)}
            )
        return value

    def with_sentences(self, value: Any, field: str = "") -> Any:
        """A part of a page, without the replaced names in its sentences."""
        if isinstance(value, str):
            return self._sentence(value) if field in ("notes", "title", "advice", "comparison_said") else value
        if isinstance(value, dict):
            return {key: self.with_sentences(part, key) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.with_sentences(part, field) for part in value]
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{own.name: self.with_sentences(getattr(value, own.name), own.name) for own in fields(value)}
            )
        return value

    def _member(self, key: str, value: Any, field: str) -> Any:
        """A member of an object; the name of a run is not like other names."""
        if key == "name" and field in ("run", "before", "after") and isinstance(value, str):
            return self._instead(value, "run")
        return self.changed(value, key)

    def _argument(self, key: str, value: Any) -> Any:
        """An argument of a span: numbers and torch's own words stay."""
        if isinstance(value, str):
            return value if key in _PLAIN_ARGUMENTS else self._name(value)
        if isinstance(value, dict):
            return {inner: self._argument(inner, part) for inner, part in value.items()}
        return [self._argument(key, part) for part in value] if isinstance(value, list) else value

    def _name(self, text: str) -> str:
        if is_known(text):
            return text
        if match := _FRAME.fullmatch(text):
            return f"{self._file(match[1])}({match[2]}): {self._instead(match[3], 'function')}"
        if match := _AFTER_ITS_KIND.fullmatch(text):
            return match[1] + self._instead(match[2], "name")
        return self._instead(text, "name")

    def _line(self, text: str) -> str:
        match = _LINE.fullmatch(text)
        return f"{self._file(match[1])}:{match[2]}" if match else self._file(text)

    def _file(self, path: str) -> str:
        return path if path.startswith("torch/") else self._instead(path, "file")

    def _host(self, name: str) -> str:
        return self._instead(name, "host")

    def _instead(self, text: str, kind: str) -> str:
        if text not in self._written:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._written[text] = f"{kind} {self._counts[kind]}"
        return self._written[text]

    def _sentence(self, text: str) -> str:
        names = [name for name in self._written if len(name) >= _SHORTEST_IN_SENTENCE and name in text]
        for name in sorted(names, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", lambda _, name=name: self._written[name], text)
        return _FILE.sub(lambda match: self._instead(match[0], "file"), text)
