"""analysis: what each kind of finding is, for people to read: the chapters of the file ``chapters.md``."""

import re
from functools import cache
from importlib.resources import files

_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@cache
def chapters() -> dict[str, str]:
    """The chapter of each kind of finding, in Markdown, without its heading and without links: these lead to files
    that an installed package does not have."""
    _, *parts = _LINK.sub(r"\1", _text()).split("\n## ")
    headed = (part.partition("\n") for part in parts)
    return {kind: chapter.strip() for kind, _, chapter in headed}


def introduction() -> str:
    """What all findings have in common, in Markdown: the text before the first chapter."""
    return _LINK.sub(r"\1", _text().partition("\n## ")[0].partition("\n")[2]).strip()


def link_to(kind: str) -> str:
    """Where somebody who has installed the package finds the chapter of a kind of finding: a command."""
    return f"kinetoscope explain {kind}"


def _text() -> str:
    return files(__package__ or "").joinpath("chapters.md").read_text(encoding="utf-8")
