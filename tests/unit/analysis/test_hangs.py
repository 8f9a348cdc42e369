"""What is said of a hang, of what its ranks have found."""

import pytest

from kinetoscope.analysis.findings.judgement import judge_pulse
from kinetoscope.pulse.stuck_phases import GroupState, StuckPhase

RANKS = list(range(1000))


def hang(rank, late):
    groups = [GroupState("0", RANKS, 7 - (rank in late), "nccl:all_reduce")]
    return StuckPhase("backward", True, 12, 0, 60_000_000_000, 30_000_000_000, "", [], groups)


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (
            {999},
            "Ranks 0-998 waited in nccl:all_reduce (number 7 of group 0) for rank 999: check the stacks of rank 999.",
        ),
        ({0, 8, 9}, "for ranks 0, 8-9: check the stacks of ranks 0, 8-9."),
        ({*RANKS} - {5}, "Rank 5 waited in nccl:all_reduce (number 7 of group 0) for ranks 0-4, 6-999"),
    ],
)
def test_who_waits_for_whom_is_told_in_ranges_however_many_they_are(late, said):
    (found,) = judge_pulse({rank: [hang(rank, late)] for rank in RANKS})
    assert said in found.advice
