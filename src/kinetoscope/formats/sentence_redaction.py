"""Redaction of Kinetoscope's sentences, which are recognised by the templates in its code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import kinetoscope

_PACKAGES = ("analysis", "core", "formats", "frames", "handlers", "merge", "pulse", "recording", "report", "spool")
LEFT_OUT = "A note is left out here: it contains words that are not Kinetoscope's."
"""The placeholder for a sentence with other words than Kinetoscope's."""
_MIN_WORDS = 3  # written in a template; with fewer, an unrelated string could match it
_WORD = re.compile(r"[A-Za-z]{2,}")
_UNKNOWN = "\N{HORIZONTAL ELLIPSIS}"
_ABOUT = re.compile(r"file \d+: ")
_QUANTITY = re.compile(
    r"(?:(?:ranks?|steps?|file) )?[+-]?\d[\d.,:-]*(?:(?:,| and) \d[\d.,-]*)*"
    r"(?:%| (?:ns|us|ms|s|min|h|days|kB|MB|GB|KiB|MiB|GiB|TB|FLOP)"
    r"| (?:spans?|events?|records?|cycles?|steps?|ranks?|files?))?"
)


class Template(NamedTuple):
    """A sentence in our code: its fixed parts, between which there are values."""

    parts: tuple[str, ...]

    def values_in(self, text: str) -> "list[tuple[int, int]] | None":
        """Return where the values are in a text that this sentence may be; None if it is another one."""
        if not all(part in text for part in self.parts):
            return None
        match = re.fullmatch("(.*?)".join(map(re.escape, self.parts)), text, re.DOTALL)
        return None if match is None else [match.span(number) for number in range(1, len(self.parts))]


def redact_sentence(text: str) -> str:
    """Return a sentence of Kinetoscope with quantities only; a placeholder for any other text."""
    prefix = match[0] if (match := _ABOUT.match(text)) else ""
    kept = _without_values(text[len(prefix) :])
    return LEFT_OUT if kept is None else prefix + kept


def _without_values(text: str) -> str | None:
    values = find_values(text)
    if values is None:
        return None
    pieces, done = [], 0
    for begin, end in values:
        value = text[begin:end]
        inner = _without_values(value) if len(value) < len(text) else None
        is_kept = not value or _QUANTITY.fullmatch(value)
        pieces += [text[done:begin], value if is_kept else inner or _UNKNOWN]
        done = end
    return "".join([*pieces, text[done:]])


def find_values(text: str) -> list[tuple[int, int]] | None:
    """Return the ranges of a text that its template does not fix; None if it is another sentence."""
    found = [values for template in _templates() if (values := template.values_in(text)) is not None]
    return min(found, key=lambda values: sum(end - begin for begin, end in values), default=None)


@cache
def _templates() -> list[Template]:
    return list(dict.fromkeys(template for tree in _trees() for template in _templates_in(tree)))


def _trees() -> Iterator[ast.Module]:
    for package in _PACKAGES:
        for path in sorted(Path(kinetoscope.__path__[0], package).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def _templates_in(tree: ast.Module) -> Iterator[Template]:
    others: set[ast.AST] = set()  # docstrings, and parts of f-strings; `ast.walk` yields parents first
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            others.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            others.update(node.values)
            yield from _template(node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in others:
            yield from _of_constant(node.value)


def _template(values: list[ast.expr]) -> Iterator[Template]:
    parts = [""]
    for value in values:
        if isinstance(value, ast.Constant):
            parts[-1] += str(value.value)
        else:
            parts.append("")
    yield from _if_distinct(tuple(parts))


def _of_constant(text: str) -> Iterator[Template]:
    """Yield a constant as it is, and as a format with values in braces."""
    yield from _if_distinct((text,))
    if "{" in text:
        yield from _if_distinct(tuple(re.split(r"\{[^{}]*\}", text)))


def _if_distinct(parts: tuple[str, ...]) -> Iterator[Template]:
    if sum(len(_WORD.findall(part)) for part in parts) >= _MIN_WORDS:
        yield Template(parts)
