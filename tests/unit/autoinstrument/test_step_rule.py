"""The end of a step of a training run, by its fetches, backward passes and optimizer steps."""

import pytest

from kinetoscope.autoinstrument.settings import ENVIRONMENT_VARIABLE, AutoSettings, read_settings
from kinetoscope.autoinstrument.step_rule import StepRule
from kinetoscope.errors import SettingsError


class Parameter:
    pass


PARAMETERS = [Parameter() for _ in range(20)]


class Optimizer:
    def __init__(self, *numbers):
        self.param_groups = [{"params": [PARAMETERS[number] for number in numbers]}]


CRITIC, GENERATOR = Optimizer(1, 2), Optimizer(3, 4)


def ends(rule, seen):
    """Return the number of steps that end at each event: a fetch, or a step of an optimizer."""
    return [int(rule.on_fetch()) if what == "fetch" else rule.on_optimizer_step(what) for what in seen]


def test_a_step_ends_at_the_fetch_after_an_optimizers_step():
    rule = StepRule(None, has_loader=True)
    seen = [CRITIC, "fetch", "fetch", "fetch", CRITIC, "fetch", CRITIC, CRITIC, GENERATOR, "fetch"]
    assert ends(rule, seen) == [0, 1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_without_a_loader_each_step_of_the_first_optimizer_ends_one():
    rule = StepRule(None, has_loader=False)
    assert ends(rule, [CRITIC, GENERATOR, CRITIC, CRITIC, GENERATOR]) == [1, 0, 1, 1, 0]


def test_sixteen_steps_without_a_fetch_count_and_so_it_stays():
    rule = StepRule(None, has_loader=True)
    assert ends(rule, [CRITIC] * 15 + ["fetch"]) == [0] * 15 + [1], "fifteen belong to one step"
    assert ends(rule, [CRITIC] * 16) == [0] * 15 + [16]
    assert ends(rule, ["fetch", CRITIC, CRITIC, "fetch"]) == [0, 1, 1, 0]


def test_another_optimizer_of_the_same_parameters_continues_the_run():
    rule = StepRule("optimizer", has_loader=True)
    first, second = Optimizer(1, 2), Optimizer(2, 3)
    assert ends(rule, [first, second, first]) == [1, 0, 1]
    assert ends(rule, [second, "fetch"] * 15) == [0, 0] * 15, "fifteen may be those of one step"
    assert ends(rule, [second, second, first]) == [16, 1, 0], "the first one is not used any more"
    del second
    assert ends(rule, [first, first]) == [2, 1], "or gone"
    other = Optimizer(5, 6)
    assert ends(rule, [other] * 15 + [first] + [other] * 80) == [0] * 15 + [1] + [0] * 80, "they alternate"
    assert rule.next_run is None


def follow(rule):
    """Return the rule of the run that has started, and how many of its steps were over before."""
    return rule.next_run.rule, len(rule.next_run.ends_ns)


@pytest.mark.parametrize("is_gone", [True, False], ids=["the first optimizer is gone", "it is still there"])
@pytest.mark.parametrize("has_loader", [True, False])
def test_a_run_of_other_parameters_starts_after_sixteen_steps_that_count_in_it(has_loader, is_gone):
    first, fetch = Optimizer(1, 2), ["fetch"] * has_loader
    rule = StepRule(None, has_loader=has_loader)
    assert sum(ends(rule, [first, *fetch] * 20)) == 20
    if is_gone:
        del first
    for _ in range(4):  # as many trials of a sweep
        trial = Optimizer(3, 4)
        assert ends(rule, [*fetch, *[trial, *fetch] * 15]) == [0] * (15 + 16 * has_loader)
        assert rule.next_run is None
        assert (rule.on_optimizer_step(trial), rule.next_run is not None) == (0, True)
        rule, num_over = follow(rule)
        assert num_over + sum(ends(rule, [*fetch, *[trial, *fetch] * 14])) == 30
        PARAMETERS[3:5] = Parameter(), Parameter()
        if is_gone:
            del trial


def test_a_run_in_memory_follows_one_with_a_loader_and_the_other_way_round():
    rule = StepRule(None, has_loader=True)
    assert sum(ends(rule, [CRITIC, "fetch"] * 3)) == 3
    assert ends(rule, [GENERATOR] * 16) == [0] * 16
    rule, num_over = follow(rule)
    assert (rule.counts_by, num_over) == ("optimizer", 16)
    third = Optimizer(7)
    assert sum(ends(rule, ["fetch", third] * 15 + ["fetch", third])) == 0
    rule, num_over = follow(rule)
    assert (rule.counts_by, num_over) == ("fetch", 15)
    assert ends(rule, ["fetch", third, "fetch"]) == [1, 0, 1]


@pytest.mark.parametrize("has_loader", [True, False])
def test_optimizers_that_alternate_are_one_run_also_in_the_one_that_follows(has_loader):
    fetch = ["fetch"] * has_loader
    rule = StepRule(None, has_loader=has_loader)
    assert sum(ends(rule, [CRITIC, *fetch] * 10 + [GENERATOR, *fetch] * 15 + [CRITIC, *fetch])) == 11 + 15 * has_loader
    ends(rule, [GENERATOR, *fetch] * 100 + [CRITIC])
    assert rule.next_run is None
    actor, critic = Optimizer(8), Optimizer(9)
    ends(rule, [actor, critic, *fetch] * 15 + [actor])
    rule, _ = follow(rule)
    ends(rule, [critic, *fetch] * 100 + [actor])
    ends(rule, [CRITIC, *fetch] * 100)
    assert rule.next_run is None, "the run before has come back"


@pytest.mark.parametrize("has_loader", [True, False])
def test_too_short_training_jobs_count_in_the_previous_run(has_loader):
    """As folds of ten steps each."""
    fetch = ["fetch"] * has_loader
    rule, num_steps = StepRule(None, has_loader=has_loader), 0
    for number in range(1, 6):
        fold = Optimizer(number)
        num_steps += sum(ends(rule, [fold, *fetch] * 10))
        del fold
    assert (num_steps + rule.finish(), rule.next_run) == (50, None)


def test_deferred_data_is_bounded():
    rule, optimizers = StepRule(None, has_loader=True), [Optimizer(number) for number in range(1, 12)]
    num_steps = sum(sum(ends(rule, [optimizer, "fetch"] * 10)) for optimizer in optimizers)
    assert 0 < 110 - num_steps == rule.finish() <= 32


def test_without_an_optimizer_a_fetch_after_a_backward_pass_ends_a_step():
    rule = StepRule(None, has_loader=True, by_backward=True)
    rule.on_backward()
    assert ends(rule, ["fetch", "fetch"]) == [1, 0]
    rule.on_backward()
    assert ends(rule, [CRITIC, "fetch"]) == [0, 1]
    rule.on_backward()
    assert ends(rule, ["fetch", CRITIC, "fetch"]) == [0, 0, 1], "micro-batches are no steps"


def test_steps_between_fetches_are_those_of_one_step_also_in_a_second_training():
    rule = StepRule(None, has_loader=True)
    first, second = Optimizer(1), Optimizer(1)
    assert ends(rule, [first, "fetch"]) == [0, 1]
    assert ends(rule, [second, "fetch"] * 20) == [0, 1] * 20
    assert ends(rule, [second] * 16) == [0] * 15 + [16]


@pytest.mark.parametrize(("count_by", "expected"), [("fetch", [0] * 20 + [1]), ("optimizer", [1] * 20 + [0])])
def test_user_options_take_precedence(count_by, expected):
    assert ends(StepRule(count_by, has_loader=count_by == "optimizer"), [CRITIC] * 20 + ["fetch"]) == expected


def test_settings_come_back_from_the_environment():
    settings = AutoSettings(out="läufe/x", num_steps=3, count_by="fetch", report=True)
    assert read_settings({ENVIRONMENT_VARIABLE: settings.to_environment_value()}) == settings
    assert read_settings({}) == AutoSettings()
    with pytest.raises(SettingsError, match="what `kinetoscope run` sets"):
        read_settings({ENVIRONMENT_VARIABLE: '{"num_steps": 0}'})
