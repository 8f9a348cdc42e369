"""Scopes of a loop: one stack of epochs and evaluations, from which it follows what is paused."""

from kinetoscope.recording.run.scopes import Epoch, Evaluation, ScopeStack


def test_an_epoch_is_current_until_it_is_removed_once():
    scopes, first, second = ScopeStack(), Epoch(), Epoch(is_implied=True)
    assert scopes.epoch is None
    assert scopes.push(first) is first
    scopes.remove(first)
    scopes.push(second)
    scopes.remove(first)  # by a generator that is closed late
    assert scopes.epoch is second


def test_recording_is_paused_while_an_evaluation_that_pauses_is_open():
    scopes, epoch, inner, outer = ScopeStack(), Epoch(), Evaluation(pauses=False), Evaluation(pauses=True)
    scopes.push(epoch)
    scopes.push(inner)
    assert (scopes.is_evaluating, scopes.is_paused) == (True, False)
    scopes.push(outer)
    assert scopes.is_paused
    scopes.remove(outer)
    assert (scopes.is_evaluating, scopes.is_paused, scopes.epoch) == (True, False, epoch)
    scopes.remove(inner)
    assert not scopes.is_evaluating


def test_an_evaluation_that_others_opened_does_not_count_on_the_thread_of_the_loop():
    scopes, evaluation = ScopeStack(), Evaluation(pauses=False)
    scopes.push(evaluation)
    assert not scopes.is_in_evaluation(is_on_loop=True)
    assert scopes.is_in_evaluation(is_on_loop=False)
    evaluation.enter()
    assert scopes.is_in_evaluation(is_on_loop=True)
    evaluation.leave()
    assert not scopes.is_in_evaluation(is_on_loop=True)
