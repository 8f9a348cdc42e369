"""Evidence of the pulse: hangs, and outlier steps of a run, recorded or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kinetoscope.analysis.steps.slow_steps import SlowStepRow
from kinetoscope.pulse.stalls import StalledPhase


@dataclass(frozen=True, kw_only=True)
class PulseEvidence:
    """Phases that did not end in time, by rank, and outlier steps of the ``num_steps`` steps of a run.

    ``num_steps`` is None where the pulse has no steps.
    """

    stuck: Mapping[int, Sequence[StalledPhase]]
    slow_steps: Sequence[SlowStepRow]
    num_steps: int | None
    mean_ns: float
