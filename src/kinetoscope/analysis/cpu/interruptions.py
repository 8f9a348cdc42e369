"""Interruptions of the loop: garbage collection, compilation, and the profiler itself."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.windows.columns import constant_column, filter_rows
from kinetoscope.analysis.windows.nesting import find_enclosing, find_outermost
from kinetoscope.analysis.windows.span_names import COMPILER
from kinetoscope.analysis.windows.window import RankWindow

_COMPILER_SUFFIX = ", of the compiler"
"""End of the name of a garbage collection that began while torch's compiler was running."""

_SPAN = ["track", "begin", "end"]


@dataclass(frozen=True, eq=False)
class Interruptions:
    """The interruptions in a window, on all threads."""

    window: RankWindow

    @cached_property
    def gc_runs(self) -> pl.DataFrame:
        """Runs of the garbage collector, also those for the compiler.

        ``line`` is where each began, and ``library`` the function that this line had called, if recorded.
        """
        return self.window.cpu.of_source("gc", "line", "library")

    @cached_property
    def program_gc_runs(self) -> pl.DataFrame:
        """Runs of the garbage collector without those for the compiler's objects, which are part of compiling."""
        return filter_rows(self.gc_runs, ~self._is_of_compiler)

    @cached_property
    def compilations(self) -> pl.DataFrame:
        """Compilations, with the ``line`` of the compiled code and the ``guard`` that failed, if recorded.

        Without recorded ones, the outermost spans of torch's compiler, where both are unknown.
        """
        recorded = self.window.cpu.of_source("compile", "line", "guard")
        if len(recorded) or not len(spans := self.window.cpu.named(COMPILER)):
            return recorded
        unknown = (constant_column(column, None, pl.String, len(spans)) for column in ("line", "guard"))
        return find_outermost(spans.hstack([*unknown]))

    @cached_property
    def compiling(self) -> pl.DataFrame:
        """Compilations and the garbage collections for them: ``track``, ``begin`` and ``end``."""
        collections = filter_rows(self.gc_runs[_SPAN], self._is_of_compiler)
        compilations = self.compilations[_SPAN]
        return pl.concat([compilations, collections]) if len(collections) else compilations

    @cached_property
    def profiling(self) -> pl.DataFrame:
        """Spans of the profiler itself."""
        return self.window.cpu.in_category("kinetoscope")

    @property
    def all(self) -> tuple[pl.DataFrame, ...]:
        """All of them."""
        return self.gc_runs, self.compilations, self.profiling

    @cached_property
    def _is_of_compiler(self) -> pl.Series:
        pauses = self.gc_runs
        if not len(pauses):
            return pl.Series(dtype=pl.Boolean)
        compiles = find_enclosing(self.compilations[_SPAN], pauses["track"], pauses["begin"])
        names = pauses["name"].cast(pl.String).str
        return compiles["end"].is_not_null() | names.ends_with(_COMPILER_SUFFIX).fill_null(False)
