"""Clock of a trace file by its header, and the shift of its times to rank 0's unix time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kinetoscope.core.clock.clock import Anchor, ClockLine
from kinetoscope.core.clock.relation import ClockRelation, decode_relation


@dataclass(frozen=True, slots=True)
class DriftCorrection:
    """A linear correction of drift: a time ``over_ns`` after ``begin_ns`` moves by ``gain_ns``."""

    begin_ns: int
    gain_ns: int
    over_ns: int

    def apply(self, time_ns: int) -> int:
        """Return a moment without the drift."""
        return time_ns + (time_ns - self.begin_ns) * self.gain_ns // self.over_ns

    def revert(self, time_ns: int) -> int:
        """Return the moment that `apply` moved here, exact to about a nanosecond."""
        return self.begin_ns + (time_ns - self.begin_ns) * self.over_ns // (self.over_ns + self.gain_ns)


@dataclass(frozen=True, slots=True)
class FileClock:
    """A file's clock: how it ran relative to unix time, and relative to rank 0's clock if that was measured."""

    line: ClockLine
    relation: ClockRelation | None
    world_size: int

    def shift_to_rank_0(self, rank_0: Sequence[ClockLine]) -> tuple[int, DriftCorrection | None]:
        """Return the shift in ns to rank 0's unix time, and the correction of drift before it.

        ``rank_0`` are the clocks of rank 0's own files; without one, rank 0's clock is assumed as it was at the
        comparison. A clock that was not compared with rank 0's is not moved.
        """
        if self.relation is None or self.relation.is_same:
            return 0, None
        begin_ns, end_ns = self.line.start.monotonic_ns, self.line.end.monotonic_ns
        shift_ns = self._shift_at(begin_ns, self.relation, rank_0)
        gain_ns = self._shift_at(end_ns, self.relation, rank_0) - shift_ns
        drifts = gain_ns and end_ns > begin_ns
        return shift_ns, DriftCorrection(self.line.unix_ns(begin_ns), gain_ns, end_ns - begin_ns) if drifts else None

    def _shift_at(self, monotonic_ns: int, relation: ClockRelation, rank_0: Sequence[ClockLine]) -> int:
        """Return the lead of rank 0's unix time over this rank's at ``monotonic_ns``, in ns."""
        on_rank_0_ns = monotonic_ns + relation.offset_ns(monotonic_ns)
        reference = ClockLine(relation.reference, relation.reference)
        line = min(rank_0, key=lambda line: abs(line.start.monotonic_ns - on_rank_0_ns), default=reference)
        return line.unix_ns(on_rank_0_ns) - self.line.unix_ns(monotonic_ns)


def parse_file_clock(kinetoscope_header: dict[str, Any]) -> FileClock | None:
    """Return the clock in a trace's own header; None if there is none or it makes no sense."""
    try:
        clock = kinetoscope_header["clock"]
        begin, end = (
            Anchor(anchor["monotonic_ns"], anchor["unix_ns"], anchor["bound_ns"]) for anchor in clock["anchors"]
        )
        relation_fields = clock.get("beside_rank0")
        relation = decode_relation(relation_fields) if relation_fields else None
        return FileClock(ClockLine(begin, end), relation, int(kinetoscope_header.get("world_size", 1)))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
