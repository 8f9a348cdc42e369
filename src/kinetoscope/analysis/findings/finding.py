"""analysis: what is wrong with a run, what that costs, and what mending it would save: one row per fault."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from kinetoscope.analysis.findings.explanations import link_to
from kinetoscope.analysis.in_notebooks import ShownInNotebooks
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.texts.wording import shown

HIGH_SHARE = 0.10
"""Confidence is high where mending saves this part of a step; where no replay can tell, if the fault costs as much."""

LEAST_SHARE = 0.25
"""What saves less than this part of what would be high is not reported; below half of it confidence is low."""

OVERHEAD_IS_HIGH = 0.2
"""Python and launches take a part of every healthy loop; only more than this part of a step is surely a fault."""

_MEDIUM_SHARE = 0.5

_MINOR_SHARE = 0.03

_WEIGHTS = {"high": 1.0, "medium": 0.6, "low": 0.3}
"""Savings are weighted by confidence before findings are ranked (the contract's factors)."""

_UNTIMED_SHARE = HIGH_SHARE
"""A finding with neither saving nor cost, such as memory growth, ranks as if it saved this share of a step."""

_ID_DIGITS = 4
"""Hexadecimal digits of a location's digest in an id: 65,536 locations per kind."""

_MAX_RANKS_IN_ID = 4
"""Ids list at most so many ranks; more become part of the digest."""

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
class Finding(PlainData, ShownInNotebooks):
    """One fault of a run. Times are nanoseconds per step.

    ``id`` identifies the fault across recordings of a program, by kind, ranks and source line; it contains no name of
    the user's. ``saving_share`` is the saving as a share of the recorded step; None without a saving.
    ``cost_ns_per_step`` is what the fault takes now; ``saving_ns_per_step`` what a step would gain without it, by a
    replay; savings of several findings do not add up. ``evidence`` are pairs of name and number, ``confidence`` is
    ``high``, ``medium`` or ``low``, ``link`` the command that explains its kind. With a ``period`` of n it
    comes in every n-th step; None where it comes irregularly, or that is not known.
    """

    _pairs = ("evidence",)

    id: str
    kind: str
    title: str
    where: Where
    evidence: tuple[tuple[str, int | float], ...]
    cost_ns_per_step: int | None
    saving_ns_per_step: int | None
    saving_share: float | None
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
    where = where or Where()
    return Finding(
        id=finding_id(kind, where),
        kind=kind,
        title=title,
        where=where,
        evidence=tuple((name, round(value, 4)) for name, value in evidence.items() if value is not None),
        cost_ns_per_step=None if cost_ns is None else round(cost_ns),
        saving_ns_per_step=None if saving_ns is None else round(saving_ns),
        saving_share=None,
        confidence=confidence,
        period=period,
        advice=advice,
        link=link_to(kind),
    )


def finding_id(kind: str, where: Where) -> str:
    """Return the id of a fault: ``straggler-rank3``, ``hot_line-9f3c``.

    The source line is part of it as a digest, so that it contains no name of the user's; the span is only where there
    are neither lines nor ranks, since the largest span may be another one in the next recording, as steps are.
    """
    ranks = "+".join(map(str, where.ranks))
    is_long = len(where.ranks) > _MAX_RANKS_IN_ID
    locations = where.lines or (() if ranks else where.spans)
    location = next(iter(locations), "") + (f" of {ranks}" if is_long else "")
    parts = [kind]
    if ranks and not is_long:
        parts.append(f"rank{ranks}")
    if location:
        parts.append(hashlib.sha256(location.encode(errors="surrogatepass")).hexdigest()[:_ID_DIGITS])
    return "-".join(parts)


def ranking_key(finding: Finding, step_ns: float) -> tuple[bool, float, int]:
    """Return the key that sorts findings by urgency, smallest first.

    Minor findings come last. Among the others, the saving (or, without one, the cost) is weighted by confidence; ties
    are broken by cost.
    """
    worth_ns = _UNTIMED_SHARE * step_ns if finding.worth_ns is None else finding.worth_ns
    return is_minor(finding, step_ns), -worth_ns * _WEIGHTS[finding.confidence], -(finding.cost_ns_per_step or 0)


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
