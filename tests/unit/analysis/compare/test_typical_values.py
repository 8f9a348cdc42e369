"""analysis/compare/typical_values.py: typical values, their errors, and Student's t."""

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.analysis.compare.typical_values import estimate, joint_degrees_of_freedom, student_quantile

# From the tables of every textbook: what t exceeds with the probability 0.025 and 0.001.
TABLE = {1: (12.706, 318.31), 2: (4.303, 22.327), 5: (2.571, 5.893), 10: (2.228, 4.144), 30: (2.042, 3.385)}


@pytest.mark.parametrize("degrees_of_freedom", TABLE)
def test_quantiles_are_those_of_the_tables(degrees_of_freedom):
    found = (student_quantile(0.025, degrees_of_freedom), student_quantile(0.001, degrees_of_freedom))
    assert found == pytest.approx(TABLE[degrees_of_freedom], rel=2e-4)


def test_a_few_long_steps_change_neither_value_nor_error_much():
    usual = [100.0 + index % 5 for index in range(40)]
    with_pauses = [value * (20 if index in (7, 23, 31) else 1) for index, value in enumerate(usual)]
    calm, busy = estimate(usual), estimate(with_pauses)
    assert busy.value == pytest.approx(calm.value, rel=0.01)
    assert busy.error < 0.02 * busy.value


def test_event_in_every_fourth_step_counts_with_its_mean():
    pauses = [0.0, 0.0, 0.0, 8.0] * 10
    assert estimate(pauses).value == 2.0


def test_the_mean_counts_every_step():
    assert estimate([1.0] * 9 + [11.0], is_mean=True).value == 2.0


def test_the_error_is_that_of_a_mean_where_steps_do_not_depend_on_each_other():
    draw = random.Random(1)
    errors = [estimate([draw.gauss(100, 10) for _ in range(64)]).error for _ in range(200)]
    assert fmean(errors) == pytest.approx(10 / math.sqrt(64), rel=0.15)


def test_the_error_is_larger_where_the_machine_became_slow_halfway():
    draw = random.Random(2)
    values = [draw.gauss(100, 1) for _ in range(40)]
    slower = values[:20] + [2 * value for value in values[20:]]
    assert estimate(slower).error > 20 * estimate(values).error


@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=60))
def test_a_typical_value_lies_among_the_values(values):
    found = estimate(values)
    assert min(values) * 0.999999 <= found.value <= max(values) * 1.000001
    assert found.error >= 0


def test_freedoms_of_equal_variances_add_up():
    assert joint_degrees_of_freedom((1.0, 7), (1.0, 7)) == 14
    assert joint_degrees_of_freedom((1.0, 7), (0.0, 3)) == 7
    assert joint_degrees_of_freedom((0.0, 7), (0.0, 7)) == 200
