"""Status of a run on a terminal. Names from files are plain text there."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinetoscope.pages.run_list import StatusScreen

_STYLES = dict.fromkeys(("killed", "failed", "hanging"), "bold red") | {"silent": "bold yellow", "recording": "green"}
_LEFT_ALIGNED = ("state", "phase", "host")


def render_status(screen: StatusScreen, width: int) -> RenderableType:
    """Return the screen for a terminal of ``width`` columns; a narrow one shows the first columns only."""
    parts: list[RenderableType] = [Text(screen.headline, style=_STYLES.get(screen.state, "bold"))]
    parts += [Text(sentence) for sentence in screen.sentences]
    if screen.rows:
        parts += [Text(), _build_table(screen, width)]
    if screen.rest:
        parts.append(Text(screen.rest))
    return Group(*parts)


def _fit_columns(screen: StatusScreen, width: int) -> tuple[int, int]:
    """Return the number of columns that fit, and the gap between them."""
    widths = [max(map(len, column)) for column in zip(screen.columns, *(row.cells for row in screen.rows), strict=True)]
    for num in range(len(widths), 1, -1):
        for gap in (2, 1):
            if sum(widths[:num]) + gap * (num - 1) <= width:
                return num, gap
    return 1, 1


def _build_table(screen: StatusScreen, width: int) -> Table:
    num_columns, gap = _fit_columns(screen, width)
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for column in screen.columns[:num_columns]:
        table.add_column(column, justify="left" if column in _LEFT_ALIGNED else "right", no_wrap=True)
    for row in screen.rows:
        style = _STYLES.get(row.state, "") if row.state != "recording" else ""
        table.add_row(*(Text(cell) for cell in row.cells[:num_columns]), style=style)
    return table
