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


UNSAMPLED = "parameters differ, but not in the sampled values (up to 1024 per tensor)"


def test_other_bytes_with_the_same_samples_are_not_equal():
    changed = ranks(1.0, digests=["other"])
    assert compare_results(ranks(1.0), ranks(1.0), changed) == ("within_tolerance", UNSAMPLED)


@pytest.mark.parametrize(
    ("last", "difference"), [(1 + 1e-15, "less than 0.0001 %"), (1.001, "0.1 %"), (1.5, "50 %"), (20.0, "1,900 %")]
)
def test_a_difference_is_a_readable_share_of_the_movement(last, difference):
    reason = compare_results(ranks(1.0), ranks(1.0), ranks(last))[1]
    assert reason == f"parameters differ by {difference} of the distance that they moved"


def test_random_augmentation_is_named_only_where_a_loader_may_have_workers():
    reasons = [compare_results(ranks(1.0), ranks(1.0), ranks(9.0), may_augment=has)[1] for has in (False, True)]
    assert reasons[1] == f"{reasons[0]}, possibly from random augmentation in the workers"


def test_values_that_are_not_finite_differ():
    broken = ranks(1.0, digests=["nan"])
    broken[0].parameters.last[0][0] = None
    found = compare_results(ranks(1.0), ranks(1.0), broken)
    assert found == ("different", "parameters differ, and some are not finite")


def test_parameters_that_did_not_move_have_no_tolerance():
    still, other = ranks(0.0), ranks(0.0, digests=["other"])
    assert compare_results(still, still, other) == ("different", UNSAMPLED)
    reason = "parameters differ, and no sampled value moved without the variant"
    assert compare_results(still, still, ranks(1.0)) == ("different", reason)


def test_starts_without_parameters_are_not_compared():
    assert compare_results([], [], ranks(1.0)) == (None, "not compared")
