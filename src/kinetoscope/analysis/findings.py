"""analysis: what is wrong with a run, what that costs, and what mending it would save."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Where:
    """The place of a finding; empty where it is everywhere. ``lines`` are lines of source, ``file:line``."""

    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    spans: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault of a run. Times are nanoseconds a step.

    ``cost_ns_per_step`` is what the fault takes now; ``saving_ns_per_step`` what a step would gain without it, by a
    replay; savings of several findings do not add up. ``evidence`` are pairs of name and number, ``confidence`` is
    ``high``, ``medium`` or ``low``, ``link`` the chapter of docs/findings.md.
    """

    kind: str
    title: str
    where: Where
    evidence: tuple[tuple[str, float], ...]
    cost_ns_per_step: int | None
    saving_ns_per_step: int | None
    confidence: str
    advice: str
    link: str

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        return asdict(self) | {"evidence": dict(self.evidence)}
