"""Spans of CPU threads of a window, by name, category and kind."""

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from kinetoscope.analysis.windows import schemas
from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.span_names import OPERATORS, PATTERNS, PYTHON_FUNCTION, RUNTIME_CALLS
from kinetoscope.formats.trace_names import STEP
from kinetoscope.frames.trace import Trace

_IS_OPERATOR = pl.col("category").is_in(list(OPERATORS)) & ~pl.col("name").str.starts_with(STEP)


@dataclass(frozen=True)
class CPUSpans:
    """The ``spans`` of CPU threads of a window, as `schemas.SPANS`, in the order of ``begin``."""

    trace: Trace
    spans: pl.DataFrame

    @cached_property
    def operators(self) -> pl.DataFrame:
        """The spans of operators on every thread, as `schemas.OPERATORS`. Old traces count steps among them."""
        return filter_rows(self.spans.hstack([self.labels])[[*schemas.OPERATORS]], self.is_operator)

    @cached_property
    def is_operator(self) -> pl.Series:
        """True for each span of ``spans`` that is an operator."""
        return self.spans.select(is_operator=_IS_OPERATOR)["is_operator"]

    @cached_property
    def labels(self) -> pl.Series:
        """The ``label`` of each span of ``spans``: its name as a category, which is quick to group by."""
        return self.spans["name"].cast(pl.Categorical).alias("label")

    @cached_property
    def runtime_calls(self) -> pl.DataFrame:
        """Calls of the device's runtime and driver, on every thread."""
        return self.in_category(*RUNTIME_CALLS)

    @cached_property
    def python_functions(self) -> pl.DataFrame:
        """Python's functions, on every thread, where torch recorded stacks."""
        return self.in_category(PYTHON_FUNCTION)

    def named(self, pattern: str) -> pl.DataFrame:
        """Return spans of threads by one of the `PATTERNS` of names."""
        is_wanted = self._matches[pattern]
        return filter_rows(self.spans, is_wanted[self._names[1]]) if is_wanted.any() else self._no_spans

    def in_category(self, *wanted: str) -> pl.DataFrame:
        """Return the spans of CPU threads of some categories."""
        found = [one for one in wanted if one in self._categories]
        if not found:
            return self._no_spans
        category = self.spans["category"]
        is_wanted = category == found[0] if len(found) == 1 else category.is_in(found)
        return filter_rows(self.spans, is_wanted)

    def operators_named(self, *names: str) -> pl.DataFrame:
        """Return the operators of some names."""
        known, name_of_each = self._names
        is_wanted = pl.Series([name in names for name in known], dtype=pl.Boolean)
        if not is_wanted.any():
            return self.operators.clear()
        return filter_rows(self.operators, is_wanted[name_of_each].filter(self.is_operator))

    def of_source(self, category: str, *args: str) -> pl.DataFrame:
        """Return the spans of a source with some of their args as columns of strings."""
        spans = self.in_category(category)
        values = [pl.col("args").cast(pl.String).str.json_path_match(f"$.{arg}").alias(arg) for arg in args]
        if not len(spans):
            return spans.hstack([pl.Series(arg, [], dtype=pl.String) for arg in args])
        args_of_spans = self.trace.spans.filter(pl.col("category") == category).select("track", *values, begin="ts")
        args_of_spans = args_of_spans.unique(("begin", "track"), keep="first").collect()
        return spans.join(args_of_spans, on=("begin", "track"), how="left", maintain_order="left")

    @cached_property
    def _names(self) -> tuple[pl.Series, pl.Series]:
        """The distinct names of the spans of CPU threads, and the index of each span's name among them."""
        names = self.spans[["name"]].unique().with_row_index("index")
        indices = self.spans[["name"]].join(names, on="name", how="left", maintain_order="left")
        return names["name"], indices["index"]

    @cached_property
    def _matches(self) -> dict[str, pl.Series]:
        """True for each of the names that a pattern matches, by pattern."""
        names = self._names[0].to_frame()
        found = names.select(pl.col("name").str.contains(pattern).alias(pattern) for pattern in PATTERNS)
        return {column.name: column for column in found}

    @cached_property
    def _categories(self) -> set[str | None]:
        return {*self.spans["category"].unique()}

    @cached_property
    def _no_spans(self) -> pl.DataFrame:
        return self.spans.clear()
