"""What is said of a hang, of what its ranks have found."""

import pytest

from kinetoscope.analysis.hangs import find_hangs
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
            "Ranks 0-998 waited in nccl:all_reduce (7 of group 0), to which rank 999 had not come: look at what it",
        ),
        ({0, 8, 9}, "to which ranks 0, 8-9 had not come: look at what they did."),
        ({*RANKS} - {5}, "Rank 5 waited in nccl:all_reduce (7 of group 0), to which ranks 0-4, 6-999 had not come"),
    ],
)
def test_who_waits_for_whom_is_told_in_ranges_however_many_they_are(late, said):
    (found,) = find_hangs({rank: [hang(rank, late)] for rank in RANKS})
    assert said in found.advice
