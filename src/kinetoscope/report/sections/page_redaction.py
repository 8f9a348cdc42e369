"""report: what is written with ``--redact`` instead of names that users chose: of runs, hosts, files, code, markers."""

import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from kinetoscope.formats.torch_names import looks_like_kernel, redact_kernel
from kinetoscope.pages.page_data import PageData
from kinetoscope.report.sections.names import is_known, is_known_argument, is_known_device, is_known_value
from kinetoscope.report.sections.own_sentences import find_values
from kinetoscope.report.sections.own_words import is_ours

_FRAME = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)
_LINE = re.compile(r"(.+):(\d+)", re.DOTALL)
_AFTER_ITS_KIND = re.compile(r"(Optimizer\.\w+#|enumerate\(DataLoader\)#|nn\.Module: )(.+)", re.DOTALL)
_FILE = re.compile(r"[^\s,;'\"()]+\.(?:json|gz|zst|parquet|py|ipynb|so|pt|txt|html)\b")
_WORD = re.compile(r"[^\s,;'\"()]+")
_SHORTEST_IN_SENTENCE = 3
_SENTENCES = frozenset(["notes", "title", "advice", "comparison_said", "said", "tensor_cores_said"])
_UNKNOWN = "\N{HORIZONTAL ELLIPSIS}"
_ABOUT = re.compile(r"(?:file|run|name) \d+: ")
_NUMBER = re.compile(r"[+-]?[\d.,:/-]*\d[a-zA-Z%]{0,3}|%")
_WORDS_OF_VALUES = frozenset(
    (
        *("file", "files", "name", "host", "run", "function", "device", "argument", "type", "thread", "rank", "ranks"),
        *(
            "step",
            "steps",
            "ns",
            "us",
            "ms",
            "s",
            "min",
            "h",
            "days",
            "kB",
            "MB",
            "GB",
            "KiB",
            "MiB",
            "GiB",
            "TB",
            "FLOP",
        ),
        *(
            "of",
            "and",
            "to",
            "from",
            "in",
            "a",
            "the",
            "none",
            "record",
            "records",
            "event",
            "events",
            "cycle",
            "cycles",
        ),
    )
)
LEFT_OUT = "A note is left out here: it has words that are not Kinetoscope's."
"""What is written instead of a note that is not ours alone, such as one in the header of a trace."""


def redacted(page: PageData) -> PageData:
    """The page without names that a user chose. The same name is always replaced by the same."""
    redaction = _Redaction()
    changed = replace(redaction.changed(page), title="A run", version=page.version)
    return redaction.with_sentences(changed)


class _Redaction:
    """Replaces texts in a page by what they are: the field that they are in tells. A text that is not known to be
    torch's, Kineto's or ours is replaced, in whatever field it is."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._kept: set[str] = set()
        self._by_field = {"line": self._line, "lines": self._line, "host": self._host, "hosts": self._host}
        self._by_field |= dict.fromkeys(("name", "operator", "module", "group", "spans", "texts"), self._name)
        self._by_field |= {"device_name": self._device}

    def changed(self, value: Any, field: str = "") -> Any:
        """A part of a page, in a field, without names; sentences stay as they are."""
        if isinstance(value, str):
            return value if field in _SENTENCES else self._by_field.get(field, self._word)(value)
        if isinstance(value, dict):
            if field == "details":
                return self._arguments(value)
            return {self._word(key): self._member(key, part, field) for key, part in value.items()}
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
            return self._sentence(value, field) if field in _SENTENCES else value
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
        if key in ("name", "title") and field in ("run", "before", "after") and isinstance(value, str):
            return self._instead(value, "run")
        return self.changed(value, key)

    def _arguments(self, members: dict[Any, Any]) -> dict[str, Any]:
        """The arguments of a span: numbers stay, and the names that torch and we give to arguments."""
        return {
            key if is_known_argument(key) else self._instead(key, "argument", self._keys): self._argument(part)
            for key, part in members.items()
        }

    def _argument(self, value: Any) -> Any:
        if isinstance(value, str):
            return value if is_known_value(value) else self._replaced(value)
        if isinstance(value, dict):
            return self._arguments(value)
        return [self._argument(part) for part in value] if isinstance(value, list) else value

    def _word(self, text: str) -> str:
        """A text in a field of which the page's own code knows the words, such as a kind of finding."""
        return text if is_ours(text) else self._name(text)

    def _name(self, text: str) -> str:
        if is_known(text):
            self._kept.add(text)
            return text
        return self._replaced(text)

    def _replaced(self, text: str) -> str:
        """What is written instead of a name, or of a frame of Python."""
        if match := _FRAME.fullmatch(text):
            return f"{self._file(match[1])}({match[2]}): {self._instead(match[3], 'function')}"
        if looks_like_kernel(text) and (kept := redact_kernel(text, self._type)) not in (text, self._type(text)):
            return kept
        if match := _AFTER_ITS_KIND.fullmatch(text):
            return match[1] + self._instead(match[2], "name")
        return self._instead(text, "name")

    def _type(self, identifier: str) -> str:
        return self._instead(identifier, "type")

    def _device(self, name: str) -> str:
        return name if is_known_device(name) else self._instead(name, "device")

    def _line(self, text: str) -> str:
        match = _LINE.fullmatch(text)
        return f"{self._file(match[1])}:{match[2]}" if match else self._file(text)

    def _file(self, path: str) -> str:
        return path if path.startswith("torch/") else self._instead(path, "file")

    def _host(self, name: str) -> str:
        return self._instead(name, "host")

    def _instead(self, text: str, kind: str, written: dict[str, str] | None = None) -> str:
        written = self._written if written is None else written
        if text not in written:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            written[text] = f"{kind} {self._counts[kind]}"
        return written[text]

    def _sentence(self, text: str, field: str) -> str:
        """A sentence without the replaced names, and without words that nobody knows. A name of one word that our
        sentences have anyway, such as that of a function ``backward``, tells nothing in them."""
        for name in _longest_first((name for name in self._written if not (name.isalpha() and is_ours(name))), text):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", lambda _, name=name: self._written[name], text)
        text = _FILE.sub(lambda match: self._instead(match[0], "file"), text)
        if field == "notes":
            return self._note(text)
        return self._known_part(text, _known_word)

    def _note(self, text: str) -> str:
        """Return a note if it is a sentence of ours, without words of users among its values."""
        prefix = match[0] if (match := _ABOUT.match(text)) else ""
        kept = self._fixed_part(text[len(prefix) :])
        return LEFT_OUT if kept is None else prefix + kept

    def _fixed_part(self, text: str) -> str | None:
        """Return a sentence of ours without words of users among its values, which may be sentences too; else None."""
        values = find_values(text)
        if values is None:
            return None
        pieces, done = [], 0
        for begin, end in values:
            value = text[begin:end]
            inner = self._fixed_part(value) if len(value) < len(text) else None
            pieces += [text[done:begin], self._known_part(value, _known_value) if inner is None else inner]
            done = end
        return "".join([*pieces, text[done:]])

    def _known_part(self, text: str, known_word: Callable[[re.Match[str]], str]) -> str:
        """Return a part of a sentence without the words that ``known_word`` replaces."""
        kept = _longest_first(self._kept, text)
        parts = re.split(f"({'|'.join(map(re.escape, kept))})", text) if kept else [text]
        return "".join(part if part in self._kept else _WORD.sub(known_word, part) for part in parts)


def _longest_first(names: Iterable[str], text: str) -> list[str]:
    """The names that are in a text."""
    found = [name for name in names if len(name) >= _SHORTEST_IN_SENTENCE and name in text]
    return sorted(found, key=len, reverse=True)


def _known_value(match: re.Match[str]) -> str:
    """Return a word among the values of a sentence, or what stands for one that a user may have chosen."""
    word = match[0].rstrip(".:!?")
    if is_known(word) or _NUMBER.fullmatch(word) or word in _WORDS_OF_VALUES:
        return match[0]
    return _UNKNOWN + match[0][len(word) :]


def _known_word(match: re.Match[str]) -> str:
    word = match[0].rstrip(".:!?")
    return match[0] if is_known(word) or is_ours(word) else _UNKNOWN + match[0][len(word) :]
