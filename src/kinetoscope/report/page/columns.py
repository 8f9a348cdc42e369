"""report: numbers and texts as a page wants them: numbers as planes of bytes, each text once."""

from typing import Any

import polars as pl

from kinetoscope.pages.page_data import Column


def numbers(values: pl.Series) -> Column:
    """A column of integers that are 0 or more."""
    return _in_planes(values, is_delta=False)


def differences(values: pl.Series) -> Column:
    """A column of integers that differ little from one to the next."""
    steps = values.cast(pl.Int64).diff().fill_null(values.first() or 0)
    return _in_planes(steps.to_frame("step").select(_folded())["step"], is_delta=True)


def _folded() -> pl.Expr:
    """Differences as numbers that are 0 or more, the small ones first."""
    step = pl.col("step")
    return pl.when(step < 0).then(-2 * step - 1).otherwise(2 * step).alias("step")


def _in_planes(values: pl.Series, *, is_delta: bool) -> Column:
    most: Any = values.max()
    num_bytes = max(1, (int(most or 0).bit_length() + 7) // 8)
    planes = []
    for place in range(num_bytes):
        values = values // 256 if place else values
        plane = values.cast(pl.UInt8, wrap_numerical=True)
        planes.append(bytes(plane.implode().cast(pl.Binary)[0]) if len(plane) else b"")
    return Column(b"".join(planes), num_bytes, is_delta=is_delta)


class Texts:
    """Texts, each of which is known by its place in ``all``."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def all(self) -> list[str]:
        """The texts, by their places."""
        return list(self._places)

    def place(self, text: str) -> int:
        """The place of a text, which is added if it is new."""
        return self._places.setdefault(text, len(self._places))

    def places(self, texts: pl.Series) -> pl.Series:
        """The places of many texts; that of "" for null."""
        texts = texts.cast(pl.String).fill_null("")
        distinct = texts.unique(maintain_order=True)
        places = pl.Series([self.place(text) for text in distinct], dtype=pl.UInt32)
        return places.gather(texts.cast(pl.Enum(distinct)).to_physical())
