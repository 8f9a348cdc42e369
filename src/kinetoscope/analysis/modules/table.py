"""The table of modules of traces: `kinetoscope.load(run).modules`."""

from collections.abc import Iterable

import polars as pl

from kinetoscope.analysis.gpu.flops import estimate_window_work
from kinetoscope.analysis.modules.calls import find_module_calls
from kinetoscope.analysis.modules.module_rows import ModuleRow, join_modules, sum_modules
from kinetoscope.analysis.windows.window_reader import read_recorded_windows
from kinetoscope.frames.trace import Trace

_TEXTS, _FLOATS = ("name", "class_name"), ("flops", "mfu")


def build_module_table(traces: Iterable[Trace]) -> pl.DataFrame:
    """Return the rows of `ModuleRow` of all windows in traces, without a row where no modules were recorded."""
    windows = (window for trace in traces for window in read_recorded_windows(trace))
    recorded = (found for window in windows if (found := find_module_calls(window)) is not None)
    rows = join_modules(
        (found.window.rank, sum_modules(found, estimate_window_work(found.window))) for found in recorded
    )
    types = dict.fromkeys(ModuleRow.__annotations__, pl.Int64)
    types |= dict.fromkeys(_TEXTS, pl.String) | dict.fromkeys(_FLOATS, pl.Float64)
    return pl.DataFrame([row.to_dict() for row in rows], schema=types)
