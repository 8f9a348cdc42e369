"""Verdicts on variants: right where the truth is known, and rarely wrong where nothing changed."""

import math
import random

import pytest

from kinetoscope.experiments.statistics import MIN_SIGMA, Rounds, compute_typical_step_ns, estimate_noise, judge


def measured(rng, *, num_rounds, effects, sigma, busy=0.0):
    """Return rounds and variants of a program whose starts vary by ``sigma``; a share of them is ``busy``."""

    def start(effect):
        slowed = abs(rng.gauss(0, 0.3)) if rng.random() < busy else 0.0
        return 1e7 * (1 + effect) * math.exp(rng.gauss(0, sigma) + slowed)

    rounds = Rounds([(start(0), start(0)) for _ in range(num_rounds)])
    return rounds, [{number: start(effect) for number in range(num_rounds)} for effect in effects]


def test_the_typical_step_contains_what_recurs_within_a_block():
    every_fifth = [30.0 if number % 5 == 0 else 10.0 for number in range(60)]
    assert compute_typical_step_ns(every_fifth) == pytest.approx(14.0)


def test_the_typical_step_leaves_out_blocks_in_which_another_process_ran():
    assert compute_typical_step_ns([10.0] * 40 + [100.0] * 20) == pytest.approx(10.0)


def test_few_steps_have_a_typical_step():
    assert compute_typical_step_ns([4.0, 6.0, 8.0]) == 6.0


@pytest.mark.parametrize(("sigma", "busy"), [(0.01, 0.0), (0.03, 0.0), (0.02, 0.1), (0.05, 0.3)])
def test_six_rows_without_a_change_rarely_have_one_with_a_verdict(sigma, busy):
    rng = random.Random(7)
    wrong = 0
    for _ in range(300):
        rounds, variants = measured(rng, num_rounds=3, effects=[0.0] * 6, sigma=sigma, busy=busy)
        wrong += any(one.verdict in ("faster", "slower") for one in judge(rounds, variants))
    assert wrong / 300 <= 1 / 20


@pytest.mark.parametrize(("effect", "verdict"), [(-0.25, "faster"), (0.5, "slower")])
def test_large_changes_have_their_verdict_after_three_rounds(effect, verdict):
    rng = random.Random(3)
    right = 0
    for _ in range(100):
        rounds, variants = measured(rng, num_rounds=3, effects=[effect, 0, 0, 0, 0, 0], sigma=0.02)
        first = judge(rounds, variants)[0]
        right += first.verdict == verdict
        assert first.interval[0] < first.change < first.interval[1]
    assert right >= 95


def test_a_change_within_three_percent_is_none_even_if_the_interval_excludes_0():
    rounds = Rounds([(1e7, 1e7)] * 8)
    (judged,) = judge(rounds, [dict.fromkeys(range(8), 0.98e7)])
    assert judged.interval[1] < 0
    assert judged.verdict == "same"


def test_a_wide_interval_around_0_is_inconclusive_and_gives_the_reason():
    rounds = Rounds([(1e7, 1.2e7), (1.1e7, 1e7), (1e7, 1.3e7)])
    (judged,) = judge(rounds, [{0: 1.1e7, 1: 1e7, 2: 1.2e7}])
    assert judged.verdict == "unsure"
    assert judged.reason == "the interval contains 0 and is wider than ±3 %"


def test_a_variant_of_one_round_has_no_verdict():
    assert judge(Rounds([(1e7, 1e7), (1e7, 1e7)]), [{0: 1e7}, {0: 1e7, 1: 1e7}])[0] is None


def test_rounds_of_a_pair_are_compared_with_the_baseline_of_the_same_rounds():
    rounds = Rounds([(1e7, 1e7)] * 3 + [(2e7, 2e7)] * 3)
    (judged,) = judge(rounds, [dict.fromkeys((3, 4, 5), 1e7)])
    assert judged.change == pytest.approx(-0.5)


def test_starts_that_agree_by_chance_do_not_make_intervals_of_width_0():
    (judged,) = judge(Rounds([(1e7, 1e7)] * 3), [dict.fromkeys(range(3), 1e7)])
    assert judged.width > 2 * MIN_SIGMA


def test_more_rows_widen_each_interval():
    rounds, variants = measured(random.Random(1), num_rounds=4, effects=[-0.1], sigma=0.02)
    assert judge(rounds, variants, num_rows=6)[0].width > judge(rounds, variants)[0].width


def test_the_noise_is_that_of_the_pairs():
    assert estimate_noise(Rounds([])) is None
    assert estimate_noise(Rounds([(1e7, 1e7 * math.exp(0.02))])) == pytest.approx(0.02 / math.sqrt(2))
