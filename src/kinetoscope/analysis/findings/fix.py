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
    ``late``, and without the parts ``beyond``."""

    change: Change
    variant: Variant = as_recorded
    beyond: frozenset[str] = frozenset()
    late: frozenset[int] = field(default_factory=frozenset)

    def saved_ns(self, graph: FaultGraph) -> int:
        """What the run gains."""
        varied = self.variant(graph)
        saved_ns = varied.saving_ns(self.change)
        others = Change(self.beyond, on_time=self.late)
        if others != Change():
            both = replace(others, without=self.change.without | self.beyond, faster=self.change.faster)
            saved_ns = min(saved_ns, varied.saving_ns(both) - graph.saved_ns(others))
        return saved_ns
