"""Growth of a rank's memory from step to step, and the operators that allocate it.

The bytes that are live at the end of each step are counted by operator and line. Memory that is freed later is no
growth: the counts are lowered to the least that any later step has. Counts that still rise, again and again until the
last step, grow.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.memory.memory_categories import classify_allocations
from kinetoscope.analysis.modules.calls import ModuleCalls
from kinetoscope.analysis.modules.costs import find_module, share_moments
from kinetoscope.analysis.windows.columns import filter_rows, select_columns
from kinetoscope.analysis.windows.nesting import find_innermost
from kinetoscope.analysis.windows.source_lines import source_lines
from kinetoscope.analysis.windows.window import MIN_STEPS, RankWindow

_MIN_RISES = 2
"""An operator whose memory rises fewer times does not leak. Judgement."""

_MIN_GROWTH_PER_FREED = 3
"""Memory grows if it rises by so many times the bytes that are freed later. Judgement."""

_ALLOCATION_OPERATORS = r"^aten::(empty|new_empty|resize)"
_HOLDER = ("operator", "line")
"""Columns that identify the source of an allocation: an operator, and the line that called it."""


@dataclass(frozen=True, kw_only=True)
class MemoryHolder:
    """An operator whose memory grows, called in a function that begins at ``line``, if stacks were recorded.

    ``category`` is the part of a step that allocated most of its memory, ``steps`` are those at whose end it had more
    than ever before.
    """

    operator: str | None
    line: str | None
    category: str
    steps: tuple[int, ...]
    bytes_per_step: int


class GrowingMemory(NamedTuple):
    """Memory that grows: its ``holders``, the most first, and the ``module`` whose calls allocated at least half."""

    holders: tuple[MemoryHolder, ...] = ()
    module: str | None = None


class MemoryGrowth:
    """The growth of memory in one window; its calls of ``modules``, if they were recorded."""

    def __init__(self, window: RankWindow, loop: TrainingLoop, modules: ModuleCalls | None) -> None:
        self._window, self._loop, self._modules = window, loop, modules

    def find(self, events: pl.DataFrame, lives: pl.DataFrame) -> GrowingMemory | None:
        """Return the growing memory of one device.

        None if steps are too few, or the trace does not show which memory was freed.

        Args:
            events: the allocations of the device.
            lives: their `lifetimes`.
        """
        if len(self._steps) < MIN_STEPS or not len(lives):
            return None
        rise = self._total_growth(events)
        if rise <= 0:
            return GrowingMemory()
        alive = self._live_allocations(lives)
        growing = self._find_growing(alive)
        if not len(growing) or 2 * rise < growing["bytes_per_step"].sum() * (len(self._steps) - 1):
            return GrowingMemory()  # in the second case, as much was freed of what is older
        module = self._find_module(growing, alive)
        growing, numbers = self._add_categories(growing, alive), self._steps["step"]
        holders = tuple(
            MemoryHolder(
                operator=row["operator"],
                line=row["line"],
                category=row["category"],
                steps=tuple(numbers[index] for index in row["rise_indices"]),
                bytes_per_step=round(row["bytes_per_step"]),
            )
            for row in growing.iter_rows(named=True)
        )
        return GrowingMemory(holders, module)

    def _find_module(self, growing: pl.DataFrame, alive: pl.DataFrame) -> str | None:
        """Return the module that allocated at least half of the growing memory that is live after the last step."""
        if self._modules is None:
            return None
        kept = alive.join(growing, on=_HOLDER, how="semi", nulls_equal=True).filter(beyond=len(self._steps))
        kept = kept.select("track", ts="begin", amount="bytes", name=pl.lit(None, pl.String))
        return find_module(share_moments(self._modules, kept))

    @cached_property
    def _steps(self) -> pl.DataFrame:
        """The longest run of steps that follow each other, which torch recorded, from the first optimizer step on."""
        operators = select_columns(self._window.cpu.operators, operator="begin")
        steps = self._window.steps.join_asof(operators, left_on="begin", right_on="operator", strategy="forward")
        steps = filter_rows(steps, steps["operator"] < steps["end"])
        if len(self._loop.phases.optimizer):
            steps = filter_rows(steps, steps["end"] >= self._loop.phases.optimizer["end"].min())
        number = pl.col("step").cast(pl.Int64) - pl.int_range(pl.len())
        runs = steps.with_columns(run=number).partition_by("run", maintain_order=True)
        return max(runs, key=len, default=steps)

    def _live_allocations(self, lives: pl.DataFrame) -> pl.DataFrame:
        """Return allocations that are live at the end of a step, with their operator and line.

        Each is live from the end of the step in row ``first`` until before that in row ``beyond``.
        """
        ends = self._steps["end"]
        allocated = filter_rows(lives, lives["bytes"] > 0)
        beyond = ends.search_sorted(allocated["end"].fill_null(ends[-1] + 1))
        allocated = allocated.hstack([ends.search_sorted(allocated["begin"]).alias("first"), beyond.alias("beyond")])
        allocated = filter_rows(allocated, allocated["first"] < allocated["beyond"])
        moments = select_columns(allocated, "track", ts="begin")
        operators = allocating_operators(self._window, moments)
        return allocated.with_columns(operators.alias("operator"), line=source_lines(self._window, moments))

    def _find_growing(self, alive: pl.DataFrame) -> pl.DataFrame:
        """Return the holders whose memory keeps growing.

        ``bytes_per_step`` is from their first rise to their last one, ``rise_indices`` are the indices of the steps of
        all rises.
        """
        index, rise, given_back = pl.col("index"), pl.col("rise"), (pl.col("held") - pl.col("lasting")).max()
        held = self._retained_by_step(alive).with_columns(
            rise=pl.col("lasting").diff().over(_HOLDER), given_back=given_back.over(_HOLDER)
        )
        found = held.filter(rise > 0).group_by(_HOLDER, maintain_order=True)
        found = found.agg(
            rise_indices=index,
            pause=index.diff().max(),
            before=index.first(),
            after=len(self._steps) - index.last(),
            grown=rise.sum(),
            is_even=rise.n_unique() == 1,
            bytes_per_step=(rise.sum() - rise.first()) / (index.last() - index.first()),
            given_back=pl.col("given_back").first(),
        )
        return found.filter(_is_growing()).sort("bytes_per_step", descending=True, maintain_order=True)

    def _add_categories(self, growing: pl.DataFrame, alive: pl.DataFrame) -> pl.DataFrame:
        """Add the category of most of its memory to each holder."""
        allocated = alive.join(growing, on=_HOLDER, how="semi", nulls_equal=True)
        spans_in_category = allocated.with_columns(category=classify_allocations(self._window, self._loop, allocated))
        spans_in_category = spans_in_category.group_by(*_HOLDER, "category").agg(pl.col("bytes").sum())
        most = spans_in_category.sort("bytes", "category").group_by(_HOLDER).agg(pl.col("category").last())
        return growing.join(most, on=_HOLDER, how="left", nulls_equal=True, maintain_order="left")

    def _retained_by_step(self, alive: pl.DataFrame) -> pl.DataFrame:
        """Return the bytes of each holder at the end of each step, ``index``.

        ``held`` are those at its end, and ``lasting`` of these the least that is held then and later.
        """
        gained = alive.select(*_HOLDER, index="first", change="bytes")
        freed = alive.select(*_HOLDER, index="beyond", change=-pl.col("bytes"))
        places = pl.DataFrame({"index": pl.int_range(len(self._steps), dtype=pl.UInt32, eager=True)})
        changes = pl.concat([gained, freed]).group_by(*_HOLDER, "index").agg(pl.col("change").sum())
        every = changes.select(_HOLDER).unique().join(places, how="cross")
        series = every.join(changes, on=[*_HOLDER, "index"], how="left", nulls_equal=True).sort(*_HOLDER, "index")
        series = series.with_columns(held=pl.col("change").fill_null(0).cum_sum().over(_HOLDER))
        return series.with_columns(lasting=pl.col("held").cum_min(reverse=True).over(_HOLDER))

    def _total_growth(self, events: pl.DataFrame) -> int:
        """Return the bytes by which the total grew from the end of the first step to that of the last."""
        totals = self._steps.join_asof(events.select("ts", "total"), left_on="end", right_on="ts", strategy="backward")
        first, last = totals["total"].fill_null(0).gather([0, -1])
        return last - first


def allocating_operators(window: RankWindow, allocations: pl.DataFrame) -> pl.Series:
    """Return the innermost operator around each of ``allocations`` (``ts``, ``track``).

    An operator that only allocates, such as ``aten::empty``, is passed over where there is another one around it.
    """
    operators = window.cpu.operators
    names = operators["name"].unique()
    others = names.filter(~names.str.contains(_ALLOCATION_OPERATORS))
    others = operators.filter(pl.col("name").is_in(others.implode()))
    found = others["name"][find_innermost(others, allocations)]
    if not found.has_nulls():
        return found
    return found.zip_with(found.is_not_null(), operators["name"][find_innermost(operators, allocations)])


def _is_growing() -> pl.Expr:
    """Return whether rises continue at the usual pause until the end, and outweigh freed memory."""
    is_continuing = (pl.col("before") <= pl.col("pause")) & (pl.col("after") <= pl.col("pause"))
    num_rises = pl.col("rise_indices").list.len()
    is_often = (num_rises > _MIN_RISES) | (num_rises == _MIN_RISES) & pl.col("is_even")
    return is_continuing & is_often & (pl.col("grown") >= _MIN_GROWTH_PER_FREED * pl.col("given_back"))
