"""Fixes of findings, as changes of a replay."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kinetoscope.analysis.findings.fault_graph import FaultGraph, Variant
from kinetoscope.analysis.replay.replay import Change


@dataclass(frozen=True)
class Fix:
    """A change of one variant of the run's graph, as plain data.

    Its saving is that without waits for the ranks ``late``, with the stages ``slow`` as fast as the others, and without
    the parts ``beyond``. Its largest possible saving includes these.
    """

    change: Change
    variant: Variant = "as_recorded"
    beyond: frozenset[str] = frozenset()
    late: frozenset[int] = frozenset()
    slow: frozenset[int] = frozenset()
    max_variant: Variant | None = None
    """The graph in which the change has its largest possible saving, if not that of ``variant``."""

    def saved_ns(self, graph: FaultGraph) -> int:
        """Return the time that the run gains."""
        varied = graph.variant(self.variant)
        saved_ns = graph.saved_ns if varied is graph.as_recorded else varied.saving_ns
        return self._saved_ns(saved_ns, graph.saved_ns)

    def max_saved_ns(self, graph: FaultGraph) -> int:
        """Return the time that the run gains at most, by what the recording shows."""
        varied = graph.variant(self.max_variant or self.variant)
        if graph.has_guesses or self.max_variant:
            varied = varied.without_guesses()
        return replace(self, beyond=frozenset())._saved_ns(varied.saving_ns, varied.saving_ns)

    def _saved_ns(self, saved_with: Callable[[Change], int], saved_without: Callable[[Change], int]) -> int:
        saved_ns = saved_with(self.change)
        others = Change(self.beyond, on_time=self.late, at_usual_load=self.slow)
        if others != Change():
            on_time, slow = self.late | self.change.on_time, self.slow | self.change.at_usual_load
            both = replace(self.change, without=self.change.without | self.beyond, on_time=on_time, at_usual_load=slow)
            saved_ns = min(saved_ns, saved_with(both) - saved_without(others))
        return saved_ns
