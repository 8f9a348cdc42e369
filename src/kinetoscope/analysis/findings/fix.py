"""Fixes of findings: the change of a replay that stands for each."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kinetoscope.analysis.findings.fault_graph import FaultGraph, Variant
from kinetoscope.analysis.replay.replay import Change


@dataclass(frozen=True)
class Fix:
    """A change of one variant of the run's graph, as plain data.

    It must gain as much without waits for the ranks ``late``, with stages ``slow`` as fast as the others, and without
    the parts ``beyond``: its largest possible saving is the one with them.
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
        others = Change(self.beyond, on_time=self.late, as_others=self.slow)
        if others != Change():
            on_time, slow = self.late | self.change.on_time, self.slow | self.change.as_others
            both = replace(self.change, without=self.change.without | self.beyond, on_time=on_time, as_others=slow)
            saved_ns = min(saved_ns, saved_with(both) - saved_without(others))
        return saved_ns
