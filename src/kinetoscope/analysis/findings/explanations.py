"""Explanations of the kinds of findings: the pages in the package `rules`, one Markdown file per kind."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kinetoscope.analysis.findings import rules

FIRST_SECTIONS = ("Meaning", "Check", "Fix", "Expected gain")
"""Sections that people read first; *Detection and limits* follows them."""

_COMMON = "README.md"
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_SUBSECTION = "\n### "


@dataclass(frozen=True)
class Explanation:
    """The page of a kind of finding: its ``title``, and Markdown by the name of each section, without links."""

    kind: str
    title: str
    sections: dict[str, str]

    @property
    def meaning(self) -> str:
        """One line on the fault."""
        return self.sections["Meaning"]

    @property
    def text(self) -> str:
        """The whole page in Markdown, without its title."""
        return "\n\n".join(f"## {name}\n\n{text}" for name, text in self.sections.items())

    def first_sections(self) -> dict[str, str]:
        """Return the sections that people read first, without their subsections."""
        return {name: self.sections[name].partition(_SUBSECTION)[0].strip() for name in FIRST_SECTIONS}


@cache
def explanations() -> dict[str, Explanation]:
    """Return the explanation of each kind, in the order of their names.

    Links are replaced by their text: they lead to files that an installed package does not have.
    """
    pages = [page for directory in rules.__path__ for page in Path(directory).glob("*.md") if page.name != _COMMON]
    return {page.stem: _parse(page.stem, _read(page)) for page in sorted(pages, key=lambda page: page.name)}


def introduction() -> str:
    """Return the fields that all findings have, in Markdown."""
    return _read(Path(rules.__path__[0]) / _COMMON).partition("\n")[2].strip()


def format_explain_command(kind: str) -> str:
    """Return the command that prints the explanation of a kind."""
    return f"kinetoscope explain {kind}"


def _parse(kind: str, text: str) -> Explanation:
    title, *sections = text.split("\n## ")
    parts = (section.partition("\n") for section in sections)
    return Explanation(
        kind=kind,
        title=title.removeprefix("# ").partition(" (")[0].strip(),
        sections={name: body.strip() for name, _, body in parts},
    )


def _read(page: Path) -> str:
    return _LINK.sub(r"\1", page.read_text(encoding="utf-8"))
