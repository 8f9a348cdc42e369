"""Sums of all calls of a window, joined in batches so that many ranks take little memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import polars as pl

from kinetoscope.analysis.compressed_pickle import unpack
from kinetoscope.analysis.cpu.operators import combine_operator_sums
from kinetoscope.analysis.gpu.kernels import combine_kernel_sums
from kinetoscope.analysis.steps.call_times_by_step import combine_step_times

_BATCH = 64
"""Number of windows whose sums are joined at a time."""


@dataclass(frozen=True)
class CallSums:
    """Sums of one window, or of several.

    ``operators`` and ``kernels`` are by name; ``by_step`` is the result of `times_by_step`.
    """

    operators: pl.DataFrame
    kernels: pl.DataFrame
    by_step: pl.DataFrame


def join_sums(parts: "Iterable[CallSums | bytes]") -> CallSums:
    """Join the sums of several windows, at least one. Packed ones are unpacked a batch at a time."""
    parts, joined = iter(parts), list[CallSums]()
    while batch := [unpack(part) if isinstance(part, bytes) else part for part in islice(parts, _BATCH)]:
        joined = [_join(joined + batch)]
    return joined[0]


def _join(parts: list[CallSums]) -> CallSums:
    return CallSums(
        operators=combine_operator_sums([part.operators for part in parts]),
        kernels=combine_kernel_sums([part.kernels for part in parts]),
        by_step=combine_step_times([part.by_step for part in parts]),
    )
