"""Confidence of findings: by the share of a step that they are worth, and by what makes a recording uncertain."""

from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect, RunQueueDelay

HIGH_SHARE = 0.10
"""Confidence is high if the saving is this share of a step, or the cost where no replay applies."""

MIN_SHARE_OF_HIGH = 0.25
"""Findings below this share of `HIGH_SHARE` are not reported; below half of it confidence is low."""

OVERHEAD_HIGH_SHARE = 0.2
"""Python and launches take a share of every healthy loop; only more than this one is certainly a fault."""

_MEDIUM_SHARE_OF_HIGH = 0.5

CONFIDENCES = ("high", "medium", "low")
"""All of them, the highest first."""


def confidence_of_share(share: float, high_share: float = HIGH_SHARE) -> str:
    """Return the confidence of a fault that takes, or whose fix saves, this share of a step."""
    return "high" if share >= high_share else "medium" if share >= _MEDIUM_SHARE_OF_HIGH * high_share else "low"


def confidence_without_replay(share: float, high_share: float = HIGH_SHARE) -> str:
    """Return the same where a replay is required and none is trusted: at most medium."""
    return cap_at_medium(confidence_of_share(share, high_share))


def cap_at_medium(confidence: str) -> str:
    """Return the confidence, lowered to medium."""
    return max(confidence, "medium", key=CONFIDENCES.index)


def confidence_if(is_certain: bool) -> str:
    """Return the confidence of a fault without time: high if it is certain, else medium."""
    return "high" if is_certain else "medium"


class ConfidencePolicy:
    """Confidence in findings of one run.

    Nothing is of high confidence if the recording ``is_uncertain``: no replay is trusted, it has too few steps, its
    trace was filtered, or ranks are missing with which these communicate.
    """

    def __init__(self, savings: SavingEstimator, delay: RunQueueDelay, *, is_uncertain: bool) -> None:
        self._savings, self._delay, self._is_uncertain = savings, delay, is_uncertain

    def of_share(self, share: float, high_share: float = HIGH_SHARE, *, is_estimate: bool = False) -> str:
        """Return the confidence of a fault worth this share of a step; that of an estimate is at most medium."""
        is_capped = self._is_uncertain or is_estimate
        return (confidence_without_replay if is_capped else confidence_of_share)(share, high_share)

    def of_time(
        self, worth_ns: float, high_share: float, effect: DelayEffect, fix: Fix | None, *, is_estimate: bool
    ) -> str:
        """Return the confidence of a fault worth this time of a step, which run-queue delay may be part of.

        It is not high while loops wait for a CPU, or where one step gains most of the saving.
        """
        share = self._delay.certain_share_of_step(effect, worth_ns)
        is_estimate |= self._delay.lowers_confidence(effect)
        confidence = self.of_share(share, high_share, is_estimate=is_estimate)
        is_hiccup = confidence == "high" and fix is not None and self._savings.is_of_one_step(fix)
        return "medium" if is_hiccup else confidence
