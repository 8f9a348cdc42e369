"""Columns of a page: integers as byte planes, and each string once."""

from typing import Any

import polars as pl

from kinetoscope.pages.page_data import Column


def encode_numbers(values: pl.Series) -> Column:
    """Return a column of integers from 0."""
    return _encode_planes(values, is_delta=False)


def encode_deltas(values: pl.Series) -> Column:
    """Return a column of integers that differ little from one to the next."""
    steps = values.cast(pl.Int64).diff().fill_null(values.first() or 0)
    return _encode_planes(steps.to_frame("step").select(_fold_signs())["step"], is_delta=True)


def _fold_signs() -> pl.Expr:
    """Return differences as integers from 0, the small ones first (zigzag encoding)."""
    step = pl.col("step")
    return pl.when(step < 0).then(-2 * step - 1).otherwise(2 * step).alias("step")


def _encode_planes(values: pl.Series, *, is_delta: bool) -> Column:
    max_value: Any = values.max()
    num_bytes = max(1, (int(max_value or 0).bit_length() + 7) // 8)
    planes = []
    for index in range(num_bytes):
        values = values // 256 if index else values
        plane = values.cast(pl.UInt8, wrap_numerical=True)
        planes.append(bytes(plane.implode().cast(pl.Binary)[0]) if len(plane) else b"")
    return Column(b"".join(planes), num_bytes, is_delta=is_delta)


class StringTable:
    """Strings, each stored once and identified by its index in ``all``."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        """The strings by index."""
        return list(self._indices)

    def index(self, string: str) -> int:
        """Return the index of a string, which is added if it is new."""
        return self._indices.setdefault(string, len(self._indices))

    def indices(self, strings: pl.Series) -> pl.Series:
        """Return the indices of many strings; null counts as ""."""
        strings = strings.cast(pl.String).fill_null("")
        distinct = strings.unique(maintain_order=True)
        indices = pl.Series([self.index(string) for string in distinct], dtype=pl.UInt32)
        return indices.gather(strings.cast(pl.Enum(distinct)).to_physical())
