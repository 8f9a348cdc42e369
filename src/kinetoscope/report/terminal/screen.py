"""Printing on a terminal, or into a file, without blanks at the ends of lines; and paragraphs behind a mark."""

from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text


def print_screen(render: Callable[[int], RenderableType]) -> None:
    """Print on stdout what ``render`` returns for its width in characters."""
    console = Console(highlight=False)
    print_trimmed(console, render(console.width))


def print_trimmed(console: Console, renderable: RenderableType) -> None:
    """Print with rich, without the blanks with which it fills lines: copied text and logs should have none."""
    trimmed: list[Segment] = []
    for line in console.render_lines(renderable, pad=False):
        while line and not line[-1].control and not line[-1].text.rstrip():
            line.pop()
        if line and not line[-1].control:
            line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
        trimmed += [*line, Segment.line()]
    console.print(Segments(trimmed), end="")


def render_hanging(mark: Text, text: Text) -> RenderableType:
    """Return text whose further lines start below the first one, behind a mark."""
    grid = Table.grid()
    grid.add_row(mark, text)
    return grid


def render_warning(sentence: str) -> RenderableType:
    """Return a warning behind an exclamation mark."""
    return render_hanging(Text("! ", style="bold yellow"), Text(sentence, style="yellow"))
