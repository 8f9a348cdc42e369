"""HTML of results in notebooks. `report` renders it, and imports this package, so `kinetoscope` connects both."""

from collections.abc import Callable
from typing import Any

_RENDERERS: list[Callable[[Any], str]] = []


def set_notebook_renderer(render: Callable[[Any], str]) -> None:
    """Set the function that renders a result as HTML, for results that are the last line of a notebook cell."""
    _RENDERERS[:] = [render]


class NotebookRepr:
    """A result with HTML for notebooks, and without fields for that."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """Return HTML without scripts, which looks the same in an untrusted notebook; None shows the text."""
        return _RENDERERS[0](self) if _RENDERERS else None
