"""Findings on a hang, from the probes of its ranks."""

import pytest

from kinetoscope.analysis.findings.judgement import judge_pulse
from kinetoscope.pulse.stalls import GroupState, StalledPhase

RANKS = list(range(1000))


def hang(rank, late):
    groups = [GroupState("0", RANKS, 7 - (rank in late), "nccl:all_reduce")]
    return StalledPhase("backward", True, 12, 0, 60_000_000_000, 30_000_000_000, "", [], groups)


@pytest.mark.parametrize(
    ("late", "sentence"),
    [
        (
            {999},
            "Check the stacks of rank 999: ranks 0-998 waited for rank 999 in nccl:all_reduce (number 7 of group 0).",
        ),
        ({0, 8, 9}, "Check the stacks of ranks 0, 8-9: ranks 1-7, 10-999 waited for ranks 0, 8-9 in"),
        ({*RANKS} - {5}, "rank 5 waited for ranks 0-4, 6-999 in nccl:all_reduce (number 7 of group 0)"),
    ],
)
def test_waiting_ranks_are_listed_in_ranges_for_any_number(late, sentence):
    (found,) = judge_pulse({rank: [hang(rank, late)] for rank in RANKS})
    assert sentence in found.advice
