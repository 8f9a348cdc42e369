"""The tally: sums of verdicts by scenario, by kind of finding, and in all."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainsim.score.judge import LARGE_SAVING_SHARE, Verdict


@dataclass(frozen=True, kw_only=True)
class Count:
    """A count and its total."""

    part: int
    whole: int

    @property
    def share(self) -> float | None:
        """The part as a share of the whole; None of nothing."""
        return self.part / self.whole if self.whole else None

    def __str__(self) -> str:
        return f"{self.part}/{self.whole}" if self.whole else "-"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The sums of some verdicts."""

    name: str
    num_runs: int
    right: Count
    """First sentences that are right, of runs that can be judged."""
    num_false_high: int
    savings: Count
    """Savings within the tolerance, of those that are judged."""
    in_interval: Count
    """Savings that are right, or whose stated interval has the rerun's."""
    num_missing_savings: int
    healthy: Count
    """Healthy versions without a finding above low confidence."""
    sure: Count
    """Right first findings of high confidence, of those whose rerun gains 10 % or more."""
    num_errors: int

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class KindRow:
    """Precision and recall of one kind of finding."""

    kind: str
    precision: Count
    """True findings, of those above low confidence on runs with a fault."""
    recall: Count
    """Plants that a finding names, of those that matter."""
    savings: Count

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def sum_up(name: str, verdicts: Sequence[Verdict]) -> Row:
    """Sum up some verdicts."""
    judged = [verdict for verdict in verdicts if verdict.is_right is not None]
    plants = [plant for verdict in verdicts for plant in verdict.plants if plant.is_saving_right is not None]
    healthy = [verdict.healthy_claims for verdict in verdicts if verdict.healthy_claims is not None]
    large = [
        verdict
        for verdict in judged
        if verdict.is_right
        and verdict.max_confidence == "high"
        and (verdict.first_gain_share or 0) >= LARGE_SAVING_SHARE
    ]
    return Row(
        name=name,
        num_runs=len(verdicts),
        right=_count(verdict.is_right for verdict in judged),
        num_false_high=sum(len(verdict.false_high) for verdict in verdicts)
        + sum(claim.confidence == "high" for claims in healthy for claim in claims),
        savings=_count(plant.is_saving_right for plant in plants),
        in_interval=_count(plant.is_saving_right or plant.is_in_interval for plant in plants),
        num_missing_savings=sum(plant.is_saving_right is False and plant.off_share is None for plant in plants),
        healthy=_count(not claims for claims in healthy),
        sure=_count(verdict.first_confidence == "high" for verdict in large),
        num_errors=sum(bool(verdict.error) for verdict in verdicts),
    )


def sum_up_kinds(verdicts: Iterable[Verdict]) -> list[KindRow]:
    """Sum up precision, recall and savings by kind."""
    claims, plants = defaultdict(list), defaultdict(list)
    for verdict in verdicts:
        for claim in verdict.claims:
            if claim.is_true is not None:
                claims[claim.kind].append(claim.is_true)
        for plant in verdict.plants:
            plants[plant.kind].append(plant)
    return [
        KindRow(
            kind=kind,
            precision=_count(claims[kind]),
            recall=_count(plant.is_named for plant in plants[kind]),
            savings=_count(plant.is_saving_right for plant in plants[kind] if plant.is_saving_right is not None),
        )
        for kind in sorted({*claims, *plants})
    ]


def _count(values: Iterable[object]) -> Count:
    values = [bool(value) for value in values]
    return Count(part=sum(values), whole=len(values))
