"""analysis: what it found, as `report` renders it for notebooks. That room imports this one, so a name stands here for
it, and it is loaded where a notebook asks for it."""

from importlib import import_module

RENDERED_BY = "kinetoscope.report.cells"


class ShownInNotebooks:
    """What a notebook shows as HTML where it is the last line of a cell. It has no fields of its own."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """It runs no script, so it looks the same in a notebook that nobody trusts."""
        return import_module(RENDERED_BY).render_cell(self)
