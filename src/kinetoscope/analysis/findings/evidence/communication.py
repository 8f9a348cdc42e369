"""Evidence on communication between ranks: exposed transfers, waits for each other, and pipelines."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from kinetoscope.analysis.findings.evidence.recording import Recording
from kinetoscope.analysis.findings.pipeline import Pipeline, Waits, find_waits
from kinetoscope.analysis.replay.replay import MAX_UNEXPLAINED_SHARE
from kinetoscope.core.text.wording import find_gaps, format_ranks

_MAX_SMALL_TRANSFERS_BYTES = 1_000_000
"""With less per step, latency dominates: the first bucket of DistributedDataParallel is about as large."""

_MIN_CALLS, _MIN_TIMES_USUAL = 8, 2
"""Among so many calls, one that takes twice as long per byte as a quarter of them waits for a rank."""


class CommunicationEvidence:
    """Time of collectives and messages, in ns per step."""

    def __init__(self, recording: Recording, pipeline: Pipeline | None, *, has_gpu: bool) -> None:
        self._recording, self.pipeline, self._has_gpu = recording, pipeline, has_gpu
        self._rows, self._calls = recording.rows, recording.rows.collectives

    @cached_property
    def exposed_ns(self) -> float:
        """The exposed communication: the mean of all ranks of a pipeline, else of those that are not late."""
        column = "device_exposed_communication_ns" if self._has_gpu else "communication_wait_ns"
        if self.pipeline is None:
            return self._recording.mean_ns(column)
        return sum(getattr(row, column) or 0 for row in self._rows.steps) / max(1, len(self._rows.steps))

    @cached_property
    def message_waits(self) -> Waits:
        """The shares of exposed communication that are waits for messages of a pipeline."""
        return find_waits(self._recording.savings.graph.as_recorded, self.pipeline)

    @property
    def evidence_of_bubble(self) -> dict[str, float | None]:
        """The waits of a pipeline's stages for each other, as evidence."""
        waits = self.message_waits
        return {
            "bubble_ns": self.exposed_ns * waits.of_messages,
            "share_of_schedule": self.pipeline and self.pipeline.schedule_share,
            "num_stages": self.pipeline and self.pipeline.num_stages,
            "num_microbatches": self.pipeline and self.pipeline.num_microbatches,
            "warm_up_ns": self.exposed_ns * waits.warm_up,
            "cool_down_ns": self.exposed_ns * waits.cool_down,
        }

    def waits_ns(self, except_for: frozenset[int] = frozenset()) -> float:
        """Return the time that ranks wait in collectives and do not compute, except for waits for ``except_for``."""
        waits = [
            wait
            for call in self._calls
            if call.waits_ns is not None and call.step is not None and call.late_rank not in except_for
            for rank, wait in zip(call.ranks, call.waits_ns, strict=True)
            if rank not in self._recording.late_ranks
        ]
        return sum(waits) / self._recording.num_rank_steps

    @cached_property
    def unknown_share(self) -> float:
        """The share of calls whose waits are unknown in the time of all calls."""
        calls = [call for call in self._calls if call.step is not None]
        lengths = [sum(call.ends_ns) - sum(call.starts_ns) for call in calls]
        unknown = [length for call, length in zip(calls, lengths, strict=True) if call.waits_ns is None]
        return sum(unknown) / sum(lengths) if sum(lengths) else 1.0

    @property
    def hidden_gaps_ns(self) -> float:
        """The time by which kernels started late for no visible reason while their GPU communicated; of all ranks."""
        return self._recording.savings.graph.as_recorded.hidden_ns / max(1, len(self._rows.steps))

    @property
    def has_small_transfers(self) -> bool:
        """True if the calls of no step transfer much. Unknown bytes may be many."""
        sizes: defaultdict[int | None, int] = defaultdict(int)
        for call in self._calls:
            if call.bytes is None:
                return False
            sizes[call.step] += call.bytes
        return 0 < max(sizes.values(), default=0) < _MAX_SMALL_TRANSFERS_BYTES

    @property
    def long_transfers_ns(self) -> float:
        """The excess of transfers over the usual time of as many bytes.

        A rank that is late makes the first call after it long, and no other one. Where all calls of a step wait as
        long, this is 0.
        """
        calls = [(max(call.ends_ns) - max(call.starts_ns), call.bytes) for call in self._calls if call.bytes]
        if len(calls) < _MIN_CALLS:
            return 0.0
        usual = sorted(time_ns / num_bytes for time_ns, num_bytes in calls)[len(calls) // 4]
        longer_ns = sum(max(0.0, time_ns - _MIN_TIMES_USUAL * usual * num_bytes) for time_ns, num_bytes in calls)
        return longer_ns / max(1, self._rows.num_steps)

    @property
    def missing_ranks(self) -> str:
        """The ranks without a trace that the recorded ones communicate with; "" without any."""
        ranks, num_ranks = self._rows.ranks, self._rows.world_size or 0
        has_unjoined = self._recording.savings.graph.as_recorded.unjoined_share > MAX_UNEXPLAINED_SHARE
        return format_ranks(find_gaps(ranks, num_ranks)) if has_unjoined and ranks and len(ranks) < num_ranks else ""

    @property
    def group_titles(self) -> Mapping[str, str]:
        """Descriptions of process groups by name."""
        return {name: title for one in self._recording.all_windows for name, title in one.group_titles.items()}
