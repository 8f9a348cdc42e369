"""analysis/findings/straggler_groups.py: which late ranks are named, and when the loaders of all ranks are slow."""

import pytest

from kinetoscope.analysis.ranks.stragglers import StragglerRow
from support.synthetic_evidence.thresholds.stragglers import group


def late(rank, cost_ns, *steps, cause="data"):
    return StragglerRow(rank=rank, cost_ns_per_step=cost_ns, steps=steps, cause=cause, period=None, evidence=())


IN_TURNS = [
    late(3, 3_000_000, 16, 20, 24),
    late(1, 2_300_000, 16, 24),
    late(2, 1_000_000, *range(14, 26), cause="device"),
]
SAME_STEPS = [late(3, 3_000_000, 16, 20, 24), late(1, 2_300_000, 16, 20, 24)]
ONE_RANK = IN_TURNS[:1]


def named(rows, num_ranks):
    """Return the ranks that are named where each on time saves its cost, in a step of 1000 ns."""
    costs = {row.rank: row.cost_ns_per_step for row in rows}
    return group(rows, lambda ranks: sum(costs[rank] for rank in ranks), num_ranks=num_ranks)


def test_half_of_the_ranks_that_wait_for_data_in_different_steps_are_no_stragglers():
    assert named(IN_TURNS, 4) == set()


@pytest.mark.parametrize(
    ("rows", "num_ranks"),
    [(SAME_STEPS, 4), (ONE_RANK, 2), (IN_TURNS[:2], 8)],
    ids=["the same steps", "one rank", "a few of many ranks"],
)
def test_other_ranks_that_wait_for_data_are_stragglers(rows, num_ranks):
    assert named(rows, num_ranks) == {row.rank for row in rows}
