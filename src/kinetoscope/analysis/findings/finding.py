"""analysis: what is wrong with a run, what that costs, and what mending it would save: one row per fault."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kinetoscope.analysis.findings.chapters import link_to
from kinetoscope.analysis.in_notebooks import ShownInNotebooks
from kinetoscope.texts.wording import shown

HIGH_SHARE = 0.10
"""Confidence is high where mending saves this part of a step; where no replay can tell, if the fault costs as much."""

LEAST_SHARE = 0.25
"""What saves less than this part of what would be high is not reported; below half of it confidence is low."""

OVERHEAD_IS_HIGH = 0.2
"""Python and launches take a part of every healthy loop; only more than this part of a step is surely a fault."""

_MEDIUM_SHARE = 0.5

_MINOR_SHARE = 0.03

CONFIDENCES = ("high", "medium", "low")
"""How sure a finding can be, the surest first."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """The place of a finding; empty where it is everywhere. ``lines`` are lines of source, ``file:line``."""

    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    spans: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding(ShownInNotebooks):
    """One fault of a run. Times are nanoseconds a step.

    ``cost_ns_per_step`` is what the fault takes now; ``saving_ns_per_step`` what a step would gain without it, by a
    replay; savings of several findings do not add up. ``evidence`` are pairs of name and number, ``confidence`` is
    ``high``, ``medium`` or ``low``, ``link`` the command that prints the chapter of its kind. With a ``period`` of n it
    comes in every n-th step; None where it comes irregularly, or that is not known.
    """

    kind: str
    title: str
    where: Where
    evidence: tuple[tuple[str, int | float], ...]
    cost_ns_per_step: int | None
    saving_ns_per_step: int | None
    confidence: str
    period: int | None
    advice: str
    link: str

    def __repr__(self) -> str:
        return f"<kinetoscope.Finding {self.kind}: {shown(self.title)}; confidence {self.confidence}>"

    @property
    def worth_ns(self) -> int | None:
        """What mending it saves of a step; where no replay tells, what it costs."""
        return self.cost_ns_per_step if self.saving_ns_per_step is None else self.saving_ns_per_step

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        return asdict(self) | {"evidence": dict(self.evidence)}


def build_finding(
    kind: str,
    title: str,
    advice: str,
    *,
    confidence: str,
    evidence: Mapping[str, float | None],
    where: Where | None = None,
    cost_ns: float | None = None,
    saving_ns: float | None = None,
    period: int | None = None,
) -> Finding:
    """A finding. Evidence that is None is not known, and left out."""
    return Finding(
        kind=kind,
        title=title,
        where=where or Where(),
        evidence=tuple((name, round(value, 4)) for name, value in evidence.items() if value is not None),
        cost_ns_per_step=None if cost_ns is None else round(cost_ns),
        saving_ns_per_step=None if saving_ns is None else round(saving_ns),
        confidence=confidence,
        period=period,
        advice=advice,
        link=link_to(kind),
    )


def is_minor(finding: Finding, step_ns: float | None) -> bool:
    """Whether it is of low confidence, and worth so little of a step, at most, that one line is enough for it."""
    most_ns, worth_ns = dict(finding.evidence).get("saving_at_most_ns"), finding.worth_ns
    worth_ns = worth_ns if worth_ns is None or most_ns is None else max(worth_ns, most_ns)
    return bool(finding.confidence == "low" and worth_ns is not None and step_ns and worth_ns < _MINOR_SHARE * step_ns)


def confidence_without_replay(share: float, high_share: float = HIGH_SHARE) -> str:
    """How sure it is where a replay would have been needed and none is trusted: never high."""
    return max(confidence_in(share, high_share), "medium", key=CONFIDENCES.index)


def confidence_in(share: float, high_share: float = HIGH_SHARE) -> str:
    """How sure it is that something is a fault which takes, or whose mending saves, this part of a step."""
    return "high" if share >= high_share else "medium" if share >= _MEDIUM_SHARE * high_share else "low"
