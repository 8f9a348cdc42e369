"""Findings: a row per fault of a run, with its location, cost, saving, confidence and advice."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kinetoscope.analysis.findings.explanations import format_explain_command
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.measured_gains import Measured
from kinetoscope.analysis.notebook_repr import NotebookRepr
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.core.text.wording import sanitize

MAX_NAMED = 3
"""Spans, and source lines, that a finding names."""

_ID_DIGITS = 4
"""Hexadecimal digits of a location's digest in an id: 65,536 locations per kind."""

REACHABLE_SAVING = "reachable_saving_ns"
"""Evidence of findings whose advised change saves less than 80 % of the saving (the contract's share)."""

_MAX_RANKS_IN_ID = 4
"""Ids list at most so many ranks; more become part of the digest."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """The location of a finding; empty where it is everywhere.

    ``lines`` are lines of source, ``file:line``. ``modules`` has the innermost torch module with at least half of the
    cost; it is empty without such a module, and where modules were not recorded.
    """

    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    spans: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding(PlainData, NotebookRepr):
    """One fault of a run. Times are nanoseconds per step; savings of several findings do not add up."""

    _pairs = ("evidence",)

    id: str
    """The identity across recordings of a program, by kind, ranks and source line, without names of the user's."""
    kind: str
    title: str
    where: Where
    evidence: tuple[tuple[str, int | float], ...]
    """Pairs of name and number."""
    cost_ns_per_step: int | None
    """The time that the fault takes now."""
    saving_ns_per_step: int | None
    """The time that a step would gain without it, by a replay; None where no replay applies."""
    saving_share: float | None
    """The saving as a share of the recorded step."""
    confidence: str
    """``high``, ``medium`` or ``low``."""
    period: int | None
    """n if it recurs every n-th step; None where it comes irregularly, or that is unknown."""
    advice: str
    link: str
    """The command that explains its kind."""
    measured: Measured | None = None
    """The gain that `kinetoscope try` has measured; None if it has not."""
    fix: Fix | None = None
    """The change that its saving is from; None without a saving. It is no part of reports for other programs."""

    def __repr__(self) -> str:
        return f"<kinetoscope.Finding {self.kind}: {sanitize(self.title)}; confidence {self.confidence}>"

    @property
    def worth_ns(self) -> int | None:
        """The saving per step; the cost where no replay applies."""
        return self.cost_ns_per_step if self.saving_ns_per_step is None else self.saving_ns_per_step

    @property
    def is_upper_bound(self) -> bool:
        """True if the change that it advises may save less than ``saving_ns_per_step``."""
        return REACHABLE_SAVING in dict(self.evidence)

    @property
    def reachable_share(self) -> float | None:
        """The share of a step that settings alone save, such as more workers; None without a saving."""
        reachable_ns = dict(self.evidence).get(REACHABLE_SAVING)
        if self.saving_share is None or reachable_ns is None or not self.saving_ns_per_step:
            return self.saving_share
        return self.saving_share * reachable_ns / self.saving_ns_per_step

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data, without the fix."""
        return {name: value for name, value in super().to_dict().items() if name != "fix"}


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
    fix: Fix | None = None,
) -> Finding:
    """Return a finding. Evidence that is None is unknown, and left out."""
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
        link=format_explain_command(kind),
        fix=fix if saving_ns is not None else None,
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
