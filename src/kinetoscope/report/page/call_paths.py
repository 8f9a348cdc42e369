"""Call paths, each stored once, for stacks and flame graphs."""

from typing import Any

import polars as pl

_MAX_COLUMN_DEPTH = 128
"""Calls down to this depth are found a depth at a time, in columns; a depth costs about a pass over all calls."""


class CallPaths:
    """Call paths, identified by an index into ``names`` and ``callers``.

    ``names`` has the name of the last call, ``callers`` the index plus 1 of the path without that call, 0 for none.
    """

    def __init__(self) -> None:
        self.names: list[int] = []
        self.callers: list[int] = []
        self._indices: dict[tuple[int, int], int] = {}

    def indices(self, names: pl.Series, parents: pl.Series, depths: pl.Series) -> pl.Series:
        """Return the path of each call, from its name, the row of its parent or null, and its depth."""
        calls = pl.DataFrame({"name": names, "parent": parents, "depth": depths}).with_row_index("row")
        found = pl.zeros(len(calls) + 1, pl.UInt32, eager=True)  # the last row is the caller of root calls
        is_deep = pl.col("depth") > _MAX_COLUMN_DEPTH
        for of_depth in sorted(calls.filter(~is_deep).partition_by("depth"), key=lambda part: part["depth"][0]):
            callers = found.gather(of_depth["parent"].fill_null(len(calls)))
            found = found.scatter(of_depth["row"], self._add_level(callers, of_depth["name"]) + 1)
        deep = calls.filter(is_deep).sort("depth")
        return (self._add_deep(found, deep) if len(deep) else found)[:-1] - 1

    def _add_deep(self, found: pl.Series, deep: pl.DataFrame) -> pl.Series:
        """Add the calls of great depth one by one, and return the paths of all calls."""
        indices: list[Any] = found.to_list()
        for row, name, parent in deep.select("row", "name", "parent").iter_rows():
            indices[row] = self._add_one(indices[parent], name) + 1
        return pl.Series(indices, dtype=pl.UInt32)

    def _add_level(self, callers: pl.Series, names: pl.Series) -> pl.Series:
        """Return the paths of calls of one depth, from the paths of their callers and their names."""
        pairs = pl.DataFrame({"caller": callers, "name": names})
        distinct = pairs.unique(maintain_order=True)
        indices = [self._add_one(caller, name) for caller, name in distinct.iter_rows()]
        distinct = distinct.with_columns(index=pl.Series(indices, dtype=pl.UInt32))
        return pairs.join(distinct, on=["caller", "name"], how="left", maintain_order="left")["index"]

    def _add_one(self, caller: int, name: int) -> int:
        """Return the index of a path, which is added if it is new."""
        index = self._indices.setdefault((caller, name), len(self.names))
        if index == len(self.names):
            self.names.append(name)
            self.callers.append(caller)
        return index
