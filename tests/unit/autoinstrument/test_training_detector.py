"""Training is detected without an optimizer, and the reason why nothing was recorded has the counts."""

import gc

import pytest

from kinetoscope.autoinstrument.training_detector import MAX_MICRO_BATCHES, NO_ACTIVITY, TrainingDetector

torch = pytest.importorskip("torch")


def fetch(detector, num_steps):
    """Return the number of the step, each a fetch and a backward pass, at whose end training is detected, or None."""
    for step in range(num_steps):
        if detector.on_fetch():
            return step
        detector.on_backward()
    return None


def test_sixteen_steps_without_an_optimizer_are_training():
    gc.collect()
    detector = TrainingDetector()
    detector.on_backward()  # before the first fetch, it ends no step
    assert [detector.on_fetch() for _ in range(40)] == [False] * 40
    assert "40 fetches and 1 backward pass. " in detector.describe()
    assert fetch(detector, 40) == 16
    assert len(detector.step_ends_ns) == 16
    assert detector.step_ends_ns == sorted(detector.step_ends_ns)
    assert "Without an optimizer, 16 such steps are needed." in detector.describe()


def test_steps_before_an_optimizer_that_exists_may_be_micro_batches():
    optimizer = torch.optim.SGD.__new__(torch.optim.SGD)  # a whole one imports the compiler of torch
    detector = TrainingDetector()
    assert fetch(detector, 40) is None
    assert "0 optimizer steps, 40 fetches and 40 backward passes. " in detector.describe()
    assert f"Without an optimizer, {MAX_MICRO_BATCHES:,} such steps are needed." in detector.describe()
    assert fetch(detector, MAX_MICRO_BATCHES) == MAX_MICRO_BATCHES - 40
    del optimizer


def test_after_a_step_of_an_optimizer_fetches_end_no_step():
    detector = TrainingDetector()
    assert fetch(detector, 15) is None
    detector.on_optimizer_step()
    assert fetch(detector, 2 * MAX_MICRO_BATCHES) is None
    assert detector.step_ends_ns == []
    assert "This process had 1 optimizer step" in detector.describe()


def test_without_any_sign_of_training_the_reason_is_always_the_same():
    assert TrainingDetector().describe() == NO_ACTIVITY
