"""analysis/findings/late_group.py: which late ranks are named, and when the loaders of all ranks are slow."""

import pytest

from kinetoscope.analysis.findings.late_group import group_by_replay, group_by_rows
from kinetoscope.analysis.ranks.stragglers import StragglerRow

STEP_NS = 18_000_000


def late(rank, cost_ns, *steps, cause="data"):
    return StragglerRow(rank=rank, cost_ns_per_step=cost_ns, steps=steps, cause=cause, period=None, evidence=())


IN_TURNS = [
    late(3, 3_000_000, 16, 20, 24),
    late(1, 2_300_000, 16, 24),
    late(2, 1_000_000, *range(14, 26), cause="device"),
]
SAME_STEPS = [late(3, 3_000_000, 16, 20, 24), late(1, 2_300_000, 16, 20, 24)]
ONE_RANK = IN_TURNS[:1]


def groups(rows, all_ranks):
    """Return the ranks that are named with a replay, in which each is worth its cost, and without one."""
    costs = {row.rank: row.cost_ns_per_step for row in rows}
    replayed = group_by_replay(
        rows, lambda ranks: [], all_ranks, lambda ranks: sum(costs[rank] for rank in ranks), STEP_NS
    )
    return [{row.rank for row in found} for found in (replayed, group_by_rows(rows, all_ranks, STEP_NS))]


def test_half_of_the_ranks_that_wait_for_data_in_different_steps_are_no_stragglers():
    assert groups(IN_TURNS, range(4)) == [set(), set()]


@pytest.mark.parametrize(
    ("rows", "num_ranks"),
    [(SAME_STEPS, 4), (ONE_RANK, 2), (IN_TURNS[:2], 8)],
    ids=["the same steps", "one rank", "a few of many ranks"],
)
def test_other_ranks_that_wait_for_data_are_stragglers(rows, num_ranks):
    ranks = {row.rank for row in rows}
    assert groups(rows, range(num_ranks)) == [ranks, ranks]
