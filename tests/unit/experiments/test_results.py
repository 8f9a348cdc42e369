"""Parameters of two starts are compared shard by shard."""

import pytest

from kinetoscope.autoinstrument.trial_files import ParameterSummary, RankResult
from kinetoscope.experiments.results import compare_results


def ranks(*lasts, digests=None, first=0.0):
    """Return the results of ranks whose parameters moved from ``first`` to these values."""
    return [
        RankResult(
            rank=rank,
            world_size=len(lasts),
            local_world_size=len(lasts),
            pid=1,
            step_times_ns=[1],
            parameters=ParameterSummary(digests[rank] if digests else str(last), [[first] * 4], [[last] * 4]),
        )
        for rank, last in enumerate(lasts)
    ]


@pytest.mark.parametrize(
    ("variant", "verdict"),
    [
        (ranks(1.0, 2.0), "equal"),
        (ranks(1.0, 2.001), "within_tolerance"),
        (ranks(1.0, 2.5), "different"),
        (ranks(1.0), None),
        (None, None),
    ],
)
def test_a_variant_is_compared_with_the_unmodified_program(variant, verdict):
    assert compare_results(ranks(1.0, 2.0), ranks(1.0, 2.0), variant)[0] == verdict


def test_a_program_that_differs_from_itself_is_not_reproducible():
    found = compare_results(ranks(1.0), ranks(1.0001), ranks(1.0))
    assert found == ("not_reproducible", "two unmodified starts differ")


def test_other_bytes_with_the_same_samples_are_not_equal():
    changed = ranks(1.0, digests=["other"])
    assert compare_results(ranks(1.0), ranks(1.0), changed)[0] == "within_tolerance"


def test_values_that_are_not_finite_differ():
    broken = ranks(1.0, digests=["nan"])
    broken[0].parameters.last[0][0] = None
    assert compare_results(ranks(1.0), ranks(1.0), broken)[0] == "different"


def test_parameters_that_did_not_move_have_no_tolerance():
    still, other = ranks(0.0), ranks(0.0, digests=["other"])
    assert compare_results(still, still, other)[0] == "different"


def test_starts_without_parameters_are_not_compared():
    assert compare_results([], [], ranks(1.0)) == (None, "not compared")
