"""report: numbers and texts as a page wants them: numbers as planes of bytes, each text once."""

from typing import Any

import polars as pl

from kinetoscope.pages.page_data import Column


def encode_numbers(values: pl.Series) -> Column:
    """A column of integers that are 0 or more."""
    return _encode_planes(values, is_delta=False)


def encode_deltas(values: pl.Series) -> Column:
    """A column of integers that differ little from one to the next."""
    steps = values.cast(pl.Int64).diff().fill_null(values.first() or 0)
    return _encode_planes(steps.to_frame("step").select(_fold_signs())["step"], is_delta=True)


def _fold_signs() -> pl.Expr:
    """Differences as numbers that are 0 or more, the small ones first."""
    step = pl.col("step")
    return pl.when(step < 0).then(-2 * step - 1).otherwise(2 * step).alias("step")


def _encode_planes(values: pl.Series, *, is_delta: bool) -> Column:
    most: Any = values.max()
    num_bytes = max(1, (int(most or 0).bit_length() + 7) // 8)
    planes = []
    for index in range(num_bytes):
        values = values // 256 if index else values
        plane = values.cast(pl.UInt8, wrap_numerical=True)
        planes.append(bytes(plane.implode().cast(pl.Binary)[0]) if len(plane) else b"")
    return Column(b"".join(planes), num_bytes, is_delta=is_delta)


class StringTable:
    """Texts, each of which is known by its place in ``all``."""

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        """The texts, by their places."""
        return list(self._indices)

    def index(self, string: str) -> int:
        """The place of a text, which is added if it is new."""
        return self._indices.setdefault(string, len(self._indices))

    def indices(self, strings: pl.Series) -> pl.Series:
        """The places of many texts; that of "" for null."""
        strings = strings.cast(pl.String).fill_null("")
        distinct = strings.unique(maintain_order=True)
        indices = pl.Series([self.index(string) for string in distinct], dtype=pl.UInt32)
        return indices.gather(strings.cast(pl.Enum(distinct)).to_physical())
