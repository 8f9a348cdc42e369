"""The loop's DataLoader: its settings, and the loop's waits for batches."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.phases import phase_spans
from kinetoscope.analysis.windows.instants import decode_args
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import find_outermost, interval_index
from kinetoscope.analysis.windows.span_names import EPOCH, EVALUATION, FETCH, FETCH_WITHOUT_WORKERS, WORKER_TRACK
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import LOADER

_MIN_EPOCHS, _MIN_BATCHES_PER_EPOCH = 2, 4
"""Fewer epochs, or shorter ones, do not show whether their starts are slow. Judgement."""

_MAX_NUMBER = 2**31 - 1
"""Larger numbers of a loader are from a damaged trace."""


@dataclass(frozen=True, eq=False)
class Loader:
    """The DataLoader of the loop of a window."""

    window: RankWindow

    @cached_property
    def evaluations(self) -> pl.DataFrame:
        """Evaluations within the loop."""
        return self.window.on_loop_thread(self.window.cpu.named(EVALUATION))

    @cached_property
    def fetches(self) -> pl.DataFrame:
        """The loop's waits for its next batch, without those of an evaluation.

        A wait that has two spans, torch's and one of ours around it, counts once.
        """
        fetches = self.window.on_loop_thread(self.window.cpu.named(FETCH))
        fetches = find_outermost(fetches if len(fetches) else phase_spans(self.window, "data"))
        if not len(self.evaluations):
            return fetches
        evaluated = self.evaluating.overlap_ns(fetches["begin"], fetches["end"])
        return fetches.filter(evaluated < fetches["end"] - fetches["begin"])

    @cached_property
    def evaluating(self) -> IntervalUnion:
        """The time of evaluations."""
        return IntervalUnion(self.evaluations)

    @cached_property
    def fetching(self) -> IntervalUnion:
        """The time of the loop's waits for batches."""
        return IntervalUnion(self.fetches)

    @cached_property
    def epoch_start_share(self) -> float | None:
        """The share of first batches of epochs in the time of all waits.

        None with fewer than two such waits, or where epochs are so short that it is much of the waiting anyway.
        """
        epochs = self.window.on_loop_thread(self.window.cpu.named(EPOCH))
        if len(epochs) < _MIN_EPOCHS:
            return None
        fetches, epochs = self.fetches.sort("begin"), epochs.select("begin").unique().sort("begin")
        firsts = epochs.join_asof(
            fetches.select("end", at="begin"), left_on="begin", right_on="at", strategy="forward", coalesce=False
        )
        firsts = firsts.drop_nulls("at").unique("at", keep="last")
        waited = (fetches["end"] - fetches["begin"]).sum()
        is_enough = len(firsts) >= _MIN_EPOCHS and len(fetches) >= _MIN_BATCHES_PER_EPOCH * len(firsts) and waited > 0
        return firsts.select((pl.col("end") - pl.col("at")).sum()).item() / waited if is_enough else None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The recorded settings of the loader; of several loaders, those of the first one."""
        notes = self.window.on_loop_thread(self.window.instants.of_category(LOADER))
        if not len(notes):
            return {}
        is_outside = interval_index(self.evaluations.sort("begin"), notes["ts"]).is_null()
        first = [*decode_args(notes.filter(is_outside)), {}][0]
        return {name: value for name, value in first.items() if not isinstance(value, int) or 0 <= value <= _MAX_NUMBER}

    @cached_property
    def num_workers(self) -> int | None:
        """The number of workers, as recorded or as in the trace; 0 where the loop builds its batches."""
        if isinstance(recorded := self.settings.get("num_workers"), int):
            return recorded
        if len(self.window.cpu.named(FETCH_WITHOUT_WORKERS)):
            return 0
        found = (re.match(WORKER_TRACK, name) for name in self.window.trace.names_of_tracks)
        return len({match[1] for match in found if match is not None}) or None
