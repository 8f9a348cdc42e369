"""The relation of two clocks: between measurements and outside them, the true offset is within the bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.core.clock.clock import Anchor
from kinetoscope.core.clock.relation import (
    ClockRelation,
    Measurement,
    decode_relation,
    encode_relation,
    same_clock,
)

SECOND = 10**9
REFERENCE = Anchor(5 * SECOND, 1_700_000_000 * SECOND)


def true_offset_ns(monotonic_ns, offset_ns, drift_ppm):
    return offset_ns + monotonic_ns * drift_ppm // 10**6


@st.composite
def relations(draw):
    """Return a relation measured between known clocks, with errors within the bounds; and the true one."""
    offset_ns, drift_ppm = draw(st.integers(-(10**16), 10**16)), draw(st.integers(-150, 150))
    moments = sorted([draw(st.integers(0, 10**13)), draw(st.integers(0, 10**13))])
    measured = []
    for moment in moments:
        bound_ns = draw(st.integers(0, 10**6))
        error_ns = draw(st.integers(-bound_ns, bound_ns))
        measured.append(Measurement(moment, true_offset_ns(moment, offset_ns, drift_ppm) + error_ns, bound_ns))
    return ClockRelation(measured[0], measured[1], REFERENCE), offset_ns, drift_ppm


@given(relations(), st.floats(0, 1))
def test_true_offset_between_two_measurements_is_within_the_larger_bound(made, share):
    relation, offset_ns, drift_ppm = made
    apart_ns = relation.latest.monotonic_ns - relation.first.monotonic_ns
    moment = relation.first.monotonic_ns + int(share * apart_ns)
    error_ns = abs(relation.offset_ns(moment) - true_offset_ns(moment, offset_ns, drift_ppm))
    assert error_ns <= relation.bound_ns(moment) + 2  # whole nanoseconds


@given(relations(), st.integers(0, 10**13))
def test_bound_grows_beyond_the_measurements_and_contains_the_true_offset(made, beyond_ns):
    relation, offset_ns, drift_ppm = made
    for moment in (relation.first.monotonic_ns - beyond_ns, relation.latest.monotonic_ns + beyond_ns):
        apart_ns = max(1, relation.latest.monotonic_ns - relation.first.monotonic_ns)
        rounding_ns = 2 + 2 * beyond_ns // apart_ns
        error_ns = abs(relation.offset_ns(moment) - true_offset_ns(moment, offset_ns, drift_ppm))
        assert error_ns <= relation.bound_ns(moment) + rounding_ns


def test_drift_is_found_from_two_measurements_and_unknown_from_one():
    first = Measurement(10 * SECOND, 7000, 100)
    assert ClockRelation(first, first, REFERENCE).drift_ppm is None
    later = Measurement(20 * SECOND, 7000 + SECOND // 1000, 100)
    assert ClockRelation(first, later, REFERENCE).drift_ppm == pytest.approx(100)


def test_the_same_clock_has_no_offset_no_drift_and_no_uncertainty():
    relation = same_clock(REFERENCE)
    assert (relation.offset_ns(10**12), relation.drift_ppm, relation.bound_ns(10**12)) == (0, 0.0, 0)


@given(relations())
def test_clock_relation_survives_a_store_unchanged(made):
    assert decode_relation(encode_relation(made[0])) == made[0]
