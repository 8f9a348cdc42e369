"""report: the words that Kinetoscope itself writes, to tell them from those of a user in sentences that have both."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from types import CodeType

import kinetoscope

_ROOMS = ("analysis", "clock", "formats", "report", "table")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+[a-zA-Z]{0,2}")


def is_ours(text: str) -> bool:
    """Whether each word of a text is one that these rooms write, or a number, perhaps with its unit."""
    return all(_NUMBER.fullmatch(word) or word.lower() in _words() for word in _WORD.findall(text))


@cache
def _words() -> frozenset[str]:
    """The words in all strings of the code that makes reports: no list of them has to be kept up by hand."""
    return frozenset(word.lower() for code in _codes() for text in _texts(code) for word in _WORD.findall(text))


def _codes() -> Iterator[CodeType]:
    for room in _ROOMS:
        folder = Path(kinetoscope.__path__[0]) / room
        for module in walk_packages([str(folder)], f"kinetoscope.{room}."):
            loader = getattr(find_spec(module.name), "loader", None)
            code = loader.get_code(module.name) if loader is not None else None
            if code is not None:
                yield code


def _texts(constant: object) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, CodeType):
        for inner in constant.co_consts:
            yield from _texts(inner)
    elif isinstance(constant, (tuple, frozenset)):
        for inner in constant:
            yield from _texts(inner)
