"""report: a chapter on a kind of finding, in the terminal and for a page."""

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.table import Table
from rich.text import Text


class _WholeTable(TableElement):
    """A table in which long words go on in the next line: none is cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part


class _Chapter(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "table_open": _WholeTable}


def render_chapter(title: str, text: str) -> RenderableType:
    """A chapter in Markdown, in as many columns as there are."""
    return Group(Text(title, style="bold"), "", _Chapter(text))


def html_of_chapter(text: str) -> str:
    """A chapter in Markdown as HTML."""
    return MarkdownIt().enable("table").render(text)
