"""The table of modules of traces. `analysis` builds it, and imports this package, so `kinetoscope` connects both."""

from collections.abc import Callable, Iterable
from typing import Any

import polars as pl

_BUILDERS: list[Callable[[Iterable[Any]], pl.DataFrame]] = []


def set_module_builder(build: Callable[[Iterable[Any]], pl.DataFrame]) -> None:
    """Set the function that builds the table of modules of traces."""
    _BUILDERS[:] = [build]


def build_modules(traces: Iterable[Any]) -> pl.DataFrame:
    """Return the table of modules of traces."""
    return _BUILDERS[0](traces)
