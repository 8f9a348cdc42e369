"""Scenarios: how to draw a run of one kind, and which findings are right for it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainsim.settings import Fault, Settings

OVERLAPS_NS = (100, 1_500, 3_000)
OVERLAP_SHARES = (0.02, 0.3, 1.0)
"""A trace has a few kernels that overlap by 1 ns, or all do by microseconds, as with programmatic dependent launch."""

KINDS_WITHOUT_REPLAY = (
    "memory_growth", "memory_limit", "idle_gaps", "profiler_cost", "hang", "hot_line", "slow_steps",
    "processor_contention",
)  # fmt: skip
KINDS_OF_UNKNOWN_SPEED = ("float32_matmul", "float64")
"""No trace shows how fast the matmuls are in another precision, so a rerun cannot confirm what a replay assumes."""


@dataclass(frozen=True, kw_only=True)
class Plant:
    """Something that is wrong with a run, and what a finding that names it looks like.

    Attributes:
        kinds: Kinds of finding that are right.
        faults: Indexes into ``Settings.faults``; the rerun without them gives the saving.
        ranks: Ranks that a straggler finding may name; all others are wrong.
        causes: Causes of a straggler that are right; empty where any is.
        max_confidence: The highest confidence that the evidence allows.
        has_replay: Whether a saving is expected that a rerun can confirm.
        mentions: A string that the finding's title contains, such as the name of an operator.
    """

    kinds: tuple[str, ...]
    faults: tuple[int, ...]
    ranks: tuple[int, ...] = ()
    causes: tuple[str, ...] = ()
    max_confidence: str = "high"
    has_replay: bool = True
    mentions: str = ""

    @property
    def kind(self) -> str:
        """The kind under which the plant is counted."""
        return self.kinds[0]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One run of a scenario. Without plants it is healthy."""

    settings: Settings
    plants: tuple[Plant, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A kind of run.

    Attributes:
        name: Its name on the command line and in tables.
        planted: A short description of what is wrong.
        draw_run: Draws settings and plants; the seed and overlapping kernels are added by `draw`.
        rules_of: Why the rules for it may fail for now; empty where they are expected to hold.
        healthy_kinds: Kinds of finding that are no mistake in its healthy version, if below high confidence.
    """

    name: str
    planted: str
    draw_run: Callable[[random.Random], Drawn]
    rules_of: str = ""
    healthy_kinds: tuple[str, ...] = ()

    def draw(self, seed: int) -> Drawn:
        """Draw the run of a seed; kernels overlap in those of odd seeds, where there is a device."""
        draw = random.Random(f"{self.name} {seed}")
        drawn = self.draw_run(draw)
        settings = replace(drawn.settings, seed=seed)
        overlap_ns, share = draw.choice(OVERLAPS_NS), draw.choice(OVERLAP_SHARES)
        if seed % 2 and settings.has_device:
            settings = replace(settings, overlap_ns=overlap_ns, overlap_share=share)
        return replace(drawn, settings=settings)

    def has_healthy_version(self, seed: int) -> bool:
        """Tell whether the healthy version of this seed's run is judged, too: of every second pair of seeds."""
        return seed // 2 % 2 == 0


def plant_of(index: int, fault: Fault) -> Plant:
    """Return the plant of a single fault."""
    if fault.cause:
        return Plant(kinds=("straggler",), faults=(index,), ranks=fault.ranks, causes=(fault.cause,))
    kind = fault.finding
    has_replay = kind not in KINDS_WITHOUT_REPLAY + KINDS_OF_UNKNOWN_SPEED
    return Plant(kinds=(kind,), faults=(index,), has_replay=has_replay)
