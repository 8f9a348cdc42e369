"""Results of analyses as plain data."""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec


class PlainData:
    """A result whose fields can become dicts, lists, strings and numbers. It has no fields of its own."""

    __slots__ = ()

    _pairs: ClassVar[tuple[str, ...]] = ()
    """Fields of pairs of a name and a value. Each field becomes a dict."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        data = msgspec.to_builtins(self)
        return data | {name: dict(data[name]) for name in self._pairs}


def to_dicts(rows: Iterable[PlainData]) -> list[dict[str, Any]]:
    """Return the fields of rows as plain data."""
    return [row.to_dict() for row in rows]
