"""Tables of a terminal: as many columns as fit, no number truncated, and a line on what is not shown."""

from collections.abc import Collection, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinetoscope.core.text.wording import format_count

MAX_ROWS = 8
MAX_NAME_LENGTH, MIN_NAME_LENGTH = 60, 20

_GAP = 2


def render_table(
    title: str,
    columns: Mapping[str, Sequence[str]],
    *,
    num_hidden_rows: int = 0,
    row_noun: str = "rank",
    hidden_columns: Collection[str] = (),
) -> RenderableType:
    """Return a table, with a line on hidden rows and columns.

    The first column is left-aligned, and narrower where the screen is too narrow for its letters.
    """
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=index > 0)
    for first, *others in zip(*columns.values(), strict=True):
        table.add_row(Text(first, no_wrap=True, overflow="ellipsis"), *others)
    hidden: list[str] = []
    if num_hidden_rows > 0:
        hidden.append(f"{format_count(num_hidden_rows, f'more {row_noun}')}: --json has all, --ranks selects some")
    if hidden_columns:
        hidden.append(
            f"{format_count(len(hidden_columns), 'column')} hidden at this width: {', '.join(hidden_columns)}"
        )
    return Group(Text(title, style="bold"), table, *(Text(line, style="dim") for line in hidden))


def format_calls(per_step: float | None) -> str:
    """Return a number of calls per step; "" if it is unknown."""
    if per_step is None:
        return ""
    return f"{per_step:,.0f}" if per_step == round(per_step) else f"{per_step:,.1f}"


def select_columns(columns: Mapping[str, Sequence[str]], width: int) -> tuple[dict[str, Sequence[str]], list[str]]:
    """Return the first columns that fit into ``width`` characters together, and the names of the others."""
    kept: dict[str, Sequence[str]] = {}
    for name, cells in columns.items():
        width -= compute_column_width(name, cells)
        if width < 0:
            break
        kept[name] = cells
    return kept, [name for name in columns if name not in kept]


def compute_column_width(name: str, cells: Sequence[str]) -> int:
    """Return the characters of a column and of the gap before it."""
    return _GAP + max(map(len, [name, *cells]))


def compute_name_width(columns: Mapping[str, Sequence[str]], width: int) -> int:
    """Return the characters that a first column of names may have beside these columns."""
    left = width - sum(compute_column_width(name, cells) for name, cells in columns.items())
    return max(MIN_NAME_LENGTH, min(MAX_NAME_LENGTH, left))
