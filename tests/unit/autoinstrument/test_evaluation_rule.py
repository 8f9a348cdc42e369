"""Classification of DataLoader fetches that belong to an evaluation."""

from kinetoscope.autoinstrument.evaluation_rule import EvaluationRule


class Iterator:
    """Fetches of a DataLoader."""

    def __init__(self, dataset):
        self._dataset = dataset


TRAIN, HELD_OUT, OTHER = [1], [2], [3]
"""Datasets; a list can be held by no weak reference and is no key."""


def found(rule, seen, *, has_gradients=True):
    """Return whether each fetch belongs to an evaluation; None in ``seen`` is a backward pass."""
    answers = []
    for iterator in seen:
        if iterator is None:
            rule.mark_trained()
        else:
            answers.append(rule.is_evaluation(iterator, has_gradients=has_gradients))
    return answers


def trained(dataset=TRAIN, num_ahead=1):
    rule, iterator = EvaluationRule(), Iterator(dataset)
    assert not any(found(rule, [*[iterator] * num_ahead, None, iterator, None]))
    return rule, iterator


def test_before_any_training_nothing_is_an_evaluation_but_where_gradients_are_off():
    iterator = Iterator(HELD_OUT)
    assert found(EvaluationRule(), [iterator] * 3) == [False] * 3
    assert found(EvaluationRule(), [iterator] * 3, has_gradients=False) == [True] * 3


def test_iterator_reused_without_training_is_an_evaluation():
    rule, train = trained()
    held_out = Iterator(HELD_OUT)
    assert found(rule, [held_out] * 3) == [False, True, True]
    assert found(rule, [train, train, None, train]) == [False] * 3


def test_later_iterator_over_training_data_may_prefetch_as_far_as_the_first():
    rule, _ = trained(num_ahead=5)
    second = Iterator(TRAIN)
    assert found(rule, [*[second] * 5, None, second, second]) == [False] * 7
    assert found(rule, [Iterator(HELD_OUT)]) == [False]
    measured = Iterator(TRAIN)
    assert found(rule, [measured] * 7) == [False] * 5 + [True] * 2


def test_two_loaders_that_are_asked_in_turns_are_both_trained_on():
    rule, train = trained()
    other = Iterator(OTHER)
    assert found(rule, [train, other, None, train, other, None, other, None, other]) == [False] * 6


def test_an_evaluation_without_gradients_just_before_a_backward_pass_stays_one():
    rule, train = trained()
    held_out = Iterator(HELD_OUT)
    assert found(rule, [train]) == [False]
    assert found(rule, [held_out, held_out, None], has_gradients=False) == [True] * 2
    assert found(rule, [train, None]) == [False]
    assert found(rule, [Iterator(HELD_OUT)] * 1 + [train]) == [False] * 2
    later = Iterator(HELD_OUT)
    assert found(rule, [later, later]) == [False, True]


def test_a_dataset_that_is_trained_on_later_is_none_from_its_first_backward_pass_on():
    rule, _ = trained()
    second = Iterator(OTHER)
    assert found(rule, [second, second, None, second, second]) == [False, True, False, False]
    third = Iterator(OTHER)
    assert found(rule, [third, third, None, third]) == [False] * 3
