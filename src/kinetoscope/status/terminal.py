"""status: what a run does now, on a screen of a terminal. Names from files are plain text there, whatever they hold."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinetoscope.pages.run_list import RunNow

_STYLES = {"killed": "bold red", "hanging": "bold red", "silent": "bold yellow", "recording": "green"}
_TEXTS = ("state", "phase", "host")


def render_now(now: RunNow, width: int) -> RenderableType:
    """The lines for a terminal of so many columns. Where it is narrow, the last columns are left out."""
    parts: list[RenderableType] = [Text(now.headline, style=_STYLES.get(now.state, "bold"))]
    parts += [Text(sentence) for sentence in now.sentences]
    if now.rows:
        parts += [Text(), _table(now, width)]
    if now.rest:
        parts.append(Text(now.rest))
    return Group(*parts)


def _fitting(now: RunNow, width: int) -> tuple[int, int]:
    """How many columns have room, and how far they are apart."""
    widths = [max(map(len, column)) for column in zip(now.columns, *(row.cells for row in now.rows), strict=True)]
    for num in range(len(widths), 1, -1):
        for gap in (2, 1):
            if sum(widths[:num]) + gap * (num - 1) <= width:
                return num, gap
    return 1, 1


def _table(now: RunNow, width: int) -> Table:
    num_columns, gap = _fitting(now, width)
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for column in now.columns[:num_columns]:
        table.add_column(column, justify="left" if column in _TEXTS else "right", no_wrap=True)
    for row in now.rows:
        style = _STYLES.get(row.state, "") if row.state != "recording" else ""
        table.add_row(*(Text(cell) for cell in row.cells[:num_columns]), style=style)
    return table
