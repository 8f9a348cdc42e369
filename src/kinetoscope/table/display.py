"""Shows plain data, such as what ``to_dict()`` returns, as tables in a notebook, and foreign texts in few letters."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any

from kinetoscope.texts.wording import shown

MOST_ROWS = 20
_MOST_LETTERS = 200
_MOST_PARTS = 8
_LEAST_WITHOUT_FRACTION = 1000
_UNKNOWN, _NONE = "-", "none"


def render_html(title: str, data: Mapping[str, Any]) -> str:
    """``data`` as HTML tables without scripts: a row for each plain value, and a table for each list of rows.

    Rows are dicts, or have ``to_dict()``. Of long lists the first `MOST_ROWS` are shown, of long texts the beginning,
    and how much more there is.
    """
    facts: list[str] = []
    tables: list[str] = []
    for name, value in data.items():
        if _are_rows(value):
            tables.append(_rows(name, value))
        else:
            facts += [_row("td", [name_of, said]) for name_of, said in _facts(name, value)]
    return f'<div style="overflow-x:auto">{_table(title, facts)}{"".join(tables)}</div>'


def html_text(value: Any, most: int = _MOST_LETTERS) -> str:
    """A text in an element of its own: letters that run from right to left do not turn what is around them."""
    return f"<bdi>{escape(shown(value, most, in_html=True))}</bdi>"


def some(items: Iterable[str], num_all: int, most: int, separator: str = "\n") -> str:
    """At most ``most`` of the items, and how many more there are."""
    more = [f"… and {num_all - most:,} more"] if num_all > most else []
    return separator.join([*islice(items, most), *more])


def _facts(name: str, value: Any) -> list[tuple[str, Any]]:
    """A value, or those of an object and of the objects in it, each with its name."""
    if not isinstance(value, Mapping):
        return [(name, value)]
    facts = [fact for key, part in islice(value.items(), MOST_ROWS) for fact in _facts(f"{name}: {key}", part)]
    return [*facts, *([(name, f"… and {len(value) - MOST_ROWS:,} more")] if len(value) > MOST_ROWS else [])]


def _are_rows(value: Any) -> bool:
    first: Sequence[Any] = value[:1] if isinstance(value, list | tuple) else ()
    return any(isinstance(row, Mapping) or hasattr(row, "to_dict") for row in first)


def _rows(name: str, rows: Sequence[Any]) -> str:
    dicts: list[Mapping[str, Any]] = [row if isinstance(row, Mapping) else row.to_dict() for row in rows[:MOST_ROWS]]
    columns = list(dict.fromkeys(key for row in dicts for key in row))
    lines = [_row("th", columns), *(_row("td", [row.get(column) for column in columns]) for row in dicts)]
    if len(rows) > MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(columns)}">… and {len(rows) - MOST_ROWS:,} more rows</td></tr>')
    return _table(f"{name}: {len(rows):,}", lines)


def _table(title: str, rows: list[str]) -> str:
    caption = f'<caption style="text-align:left;font-weight:bold">{_cell(title)}</caption>'
    return f"<table>{caption}{''.join(rows)}</table>"


def _row(tag: str, values: Sequence[Any]) -> str:
    cells = (f'<{tag} style="text-align:left;vertical-align:top">{_cell(value)}</{tag}>' for value in values)
    return f"<tr>{''.join(cells)}</tr>"


def _cell(value: Any) -> str:
    return html_text(_text(value))


def _text(value: Any) -> str:
    match value:
        case None:
            return _UNKNOWN
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= _LEAST_WITHOUT_FRACTION else f"{value:.4g}"
        case Mapping():
            parts = (f"{key} {_text(part)}" for key, part in value.items())
            return some(parts, len(value), _MOST_PARTS, ", ") or _NONE
        case list() | tuple():
            return some(map(_text, value), len(value), _MOST_PARTS, ", ") or _NONE
        case _:
            return str(value)
