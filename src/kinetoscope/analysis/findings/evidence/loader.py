"""Evidence on the DataLoader: waits of the loop, its settings, and the work of building a batch."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.thread_states import is_waiting
from kinetoscope.analysis.findings.blocking_calls import GIL
from kinetoscope.analysis.findings.evidence.recording import Recording
from kinetoscope.analysis.ranks.run_queue_delay import RunQueueDelay

MIN_SAMPLES = 5
"""Fewer samples do not show what a thread waits for."""


class LoaderEvidence:
    """The DataLoader of a run; its settings are empty where they were not recorded."""

    def __init__(self, recording: Recording, delay: RunQueueDelay) -> None:
        self._recording, self._delay = recording, delay
        loaders = [one.loader for one in recording.all_windows]
        self.num_workers = max((one.num_workers for one in loaders if one.num_workers is not None), default=None)
        self.settings: Mapping[str, Any] = next((one.settings for one in loaders if one.settings), {})
        self.pins_memory = any(one.settings.get("pin_memory") is True for one in loaders)
        starts = [one.epoch_start_share for one in loaders if one.epoch_start_share is not None]
        self.epoch_start_share = sum(starts) / len(starts) if starts else None
        """The share of first batches of epochs in the waits for data."""

    @cached_property
    def wait_ns(self) -> float:
        """The wait for data per step: the number of the time breakdown, where no rank is late."""
        rows, late = self._recording.rows, self._recording.late_ranks
        by_rank = {row.rank: row for row in rows.by_rank if row.rank not in late}
        parts = [row.parts["host"] for row in by_rank.values() if row.parts is not None]
        if not late and rows.parts is not None:
            parts = [rows.parts["host"]]
        return sum(one["data_wait_ns"] or 0 for one in parts) / max(1, len(parts))

    @cached_property
    def waiting_share(self) -> float | None:
        """The share of waits in the time of building a batch, without run-queue delay; None if unknown.

        A wait for the GIL does not count: another thread of the process computes.
        """
        known = self._recording.stalls("data").by_call.drop_nulls("state")
        if int(known["num_samples"].sum()) < MIN_SAMPLES:
            return None
        is_for_gil = pl.col("state").str.contains(f"^(?:{GIL.pattern})$")
        waited = float(known.filter(is_waiting() & ~is_for_gil)["share"].sum())
        ran = (float(known["share"].sum()) - waited) * (1 - self._delay.share)
        return waited / (waited + ran)

    @property
    def has_unsampled_workers(self) -> bool:
        """True if the loop was sampled, but no worker while it built a batch."""
        is_sampled = any(one.cpu.is_sampled for one in self._recording.windows)
        return is_sampled and not len(self._recording.stalls("data").by_call)
