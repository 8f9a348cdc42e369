"""analysis: what a finding changes in a replay of the run, and what a step gains by it: the same for all who ask."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.replay.replay import Change, ReplayGraph

Variant = Callable[[FaultGraph], ReplayGraph]


def as_recorded(graph: FaultGraph) -> ReplayGraph:
    """The run's own graph."""
    return graph.as_recorded


@dataclass(frozen=True)
class Fix:
    """A ``change`` of one ``variant`` of the run's graph. It must be worth as much if nobody waited for the ranks
    ``late``, if the pipeline stages ``slow`` had no more to do than others, and without the parts ``beyond``: what it
    saves at most is worth it with them."""

    change: Change
    variant: Variant = as_recorded
    beyond: frozenset[str] = frozenset()
    late: frozenset[int] = field(default_factory=frozenset)
    slow: frozenset[int] = field(default_factory=frozenset)
    most_variant: Variant | None = None
    """The graph in which the change saves the most that it can; that of ``variant``, if there is no other."""

    def saved_ns(self, graph: FaultGraph) -> int:
        """What the run gains."""
        varied = self.variant(graph)
        saved_ns = graph.saved_ns if varied is graph.as_recorded else varied.saving_ns
        return self._saved_ns(saved_ns, graph.saved_ns)

    def most_saved_ns(self, graph: FaultGraph) -> int:
        """What the run gains at most, by what the recording shows."""
        varied = (self.most_variant or self.variant)(graph)
        if graph.has_guesses or self.most_variant:
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
