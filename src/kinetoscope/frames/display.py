"""HTML tables of plain data for notebooks, such as the results of ``to_dict()``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kinetoscope.core.text.templates import load_macros

MAX_SHOWN_ROWS = 20
_MAX_SHOWN_ITEMS = 8
_MIN_WITHOUT_FRACTION = 1000
_UNKNOWN, _NONE = "-", "none"


@dataclass(frozen=True)
class _Table:
    """A table for the template: ``columns`` have a header unless there are none, and ``num_left`` rows are left out."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_left: int = 0


def render_html(title: str, data: Mapping[str, Any]) -> str:
    """Render ``data`` as HTML tables without scripts: a row for each plain value, and a table for each list of rows.

    Rows are dicts, or have ``to_dict()``. Of long lists the first `MAX_SHOWN_ROWS` are shown, and of long strings the
    beginning, with the number of those left out.
    """
    facts: list[Sequence[str]] = []
    tables: list[_Table] = []
    for name, value in data.items():
        if _are_rows(value):
            tables.append(_build_table(name, value))
        else:
            facts += [(name_of, _format_value(value_of)) for name_of, value_of in _list_facts(name, value)]
    return str(load_macros("frames/display.jinja").tables([_Table(title, (), facts), *tables]))


def first_items(items: Iterable[str], num_all: int, max_items: int, separator: str = "\n") -> str:
    """Return at most ``max_items`` of the items as a string, and how many more there are."""
    more = [f"… and {num_all - max_items:,} more"] if num_all > max_items else []
    return separator.join([*islice(items, max_items), *more])


def _list_facts(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return a value, or those of an object and of the objects in it, each with its name."""
    if not isinstance(value, Mapping):
        return [(name, value)]
    facts = [
        fact for key, part in islice(value.items(), MAX_SHOWN_ROWS) for fact in _list_facts(f"{name}: {key}", part)
    ]
    return [*facts, *([(name, f"… and {len(value) - MAX_SHOWN_ROWS:,} more")] if len(value) > MAX_SHOWN_ROWS else [])]


def _are_rows(value: Any) -> bool:
    first: Sequence[Any] = value[:1] if isinstance(value, list | tuple) else ()
    return any(isinstance(row, Mapping) or hasattr(row, "to_dict") for row in first)


def _build_table(name: str, rows: Sequence[Any]) -> _Table:
    dicts: list[Mapping[str, Any]] = [
        row if isinstance(row, Mapping) else row.to_dict() for row in rows[:MAX_SHOWN_ROWS]
    ]
    columns = list(dict.fromkeys(key for row in dicts for key in row))
    lines = [[_format_value(row.get(column)) for column in columns] for row in dicts]
    return _Table(f"{name}: {len(rows):,}", columns, lines, max(0, len(rows) - MAX_SHOWN_ROWS))


def _format_value(value: Any) -> str:
    match value:
        case None:
            return _UNKNOWN
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= _MIN_WITHOUT_FRACTION else f"{value:.4g}"
        case Mapping():
            parts = (f"{key} {_format_value(part)}" for key, part in value.items())
            return first_items(parts, len(value), _MAX_SHOWN_ITEMS, ", ") or _NONE
        case list() | tuple():
            return first_items(map(_format_value, value), len(value), _MAX_SHOWN_ITEMS, ", ") or _NONE
        case _:
            return str(value)
