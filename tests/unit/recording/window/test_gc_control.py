"""The user's setting of Python's garbage collector is kept, whatever we do."""

import gc
import threading

import pytest

from kinetoscope.recording.window.gc_control import pause_gc


@pytest.fixture(autouse=True)
def as_it_was():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


def num_collections():
    return sum(generation["collections"] for generation in gc.get_stats())


def test_the_collector_rests_while_much_is_built_and_works_again_afterwards():
    thresholds = gc.get_threshold()
    with pause_gc():
        before = num_collections()
        built = [[] for _ in range(100_000)]
        assert num_collections() - before <= 1
    assert len(built) == 100_000
    assert gc.isenabled()
    assert gc.get_threshold() == thresholds


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with pause_gc():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_collector_that_training_switches_off_during_a_recording_stays_off():
    with pause_gc():
        training = threading.Thread(target=gc.disable)
        training.start()
        training.join()
    assert not gc.isenabled()


def test_training_that_collects_by_hand_finds_the_collector_on_and_leaves_it_on():
    with pause_gc():
        assert gc.isenabled()


def test_thresholds_that_training_sets_during_a_recording_stay():
    with pause_gc():
        gc.set_threshold(50_000, 20, 30)
    assert gc.get_threshold() == (50_000, 20, 30)


def test_two_threads_that_build_at_once_leave_the_thresholds_as_they_were():
    thresholds = gc.get_threshold()
    entered, leave = threading.Event(), threading.Event()

    def build():
        with pause_gc():
            entered.set()
            assert leave.wait(10)

    other = threading.Thread(target=build)
    with pause_gc():
        other.start()
        assert entered.wait(10)
    assert gc.get_threshold() != thresholds
    leave.set()
    other.join()
    assert gc.get_threshold() == thresholds


def test_an_error_while_building_leaves_the_thresholds_as_they_were():
    thresholds = gc.get_threshold()
    with pytest.raises(KeyError), pause_gc(), pause_gc():
        raise KeyError
    assert gc.get_threshold() == thresholds
