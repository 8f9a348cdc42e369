"""Explanations of findings, for terminals and for the report page."""

import re
from collections.abc import Mapping
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_HEADING_IN_CARD = 4
"""The level of a section's heading on the page of a report, below the title of its finding."""

_CODE = re.compile(r"\n*```\w*\n(.*?)\n```\n*", re.DOTALL)
_BLOCKS = ("```", "**", "- ", "|")
"""Starts of texts that cannot follow a name on its line."""


class _WholeTable(TableElement):
    """A table whose long words continue on the next line, so that none is truncated."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "table_open": _WholeTable}


def render_markdown(text: str) -> RenderableType:
    """Return Markdown for a terminal of any width."""
    return _Markdown(text)


def render_sections(sections: Mapping[str, str]) -> RenderableType:
    """Return sections of an explanation for a terminal, each with its name before its first line.

    Code follows directly below its sentence, unwrapped and without a frame, so that it can be copied.
    """
    text = "\n\n".join(_add_names(name, body) for name, body in sections.items())
    prose, *others = _CODE.split(text)
    parts: list[RenderableType] = [_Markdown(prose)]
    for code, following in zip(others[::2], others[1::2], strict=True):
        parts.append(Padding(Text(code, style="cyan", overflow="fold"), (0, 0, bool(following), 2), expand=False))
        parts += [_Markdown(following)] if following else []
    return Group(*parts)


def _add_names(name: str, text: str) -> str:
    """Return a section with its name, and with the names of its subsections, in bold instead of as headings."""
    first, *subsections = text.split("\n### ")
    separator = "\n\n" if first.startswith(_BLOCKS) else " "
    parts = [f"**{name}**:{separator}{first}"]
    for subsection in subsections:
        title, _, body = subsection.partition("\n")
        parts.append(f"**{title}**:\n\n{body.strip()}")
    return "\n\n".join(parts)


def render_explanation_html(text: str) -> str:
    """Return an explanation in Markdown as HTML, with headings for a card of the page."""
    markdown = MarkdownIt().enable("table")
    tokens = markdown.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{int(token.tag[1:]) - 2 + _HEADING_IN_CARD}"
    html = markdown.renderer.render(tokens, markdown.options, {})
    return html.replace("<pre>", '<pre tabindex="0">')  # so that the keyboard can scroll it
