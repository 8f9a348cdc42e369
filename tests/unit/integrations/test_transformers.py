"""The events of the Transformers Trainer, in its order, and fetches of real DataLoaders around them."""

from types import SimpleNamespace

import pytest

import kinetoscope
from kinetoscope.integrations.transformers import KinetoscopeCallback
from support.autoinstrumented_runs import frame_of

torch = pytest.importorskip("torch")
SKIP = kinetoscope.ProfilerAction.SKIP


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.ones(8))


class Trainer:
    """A Trainer, as far as the callback sees it."""

    def __init__(self, folder, dataset=None, num_accumulated=1, global_step=0, ignore_data_skip=False):
        self.callback = KinetoscopeCallback(folder, torch=False, system=False, quiet=True, schedule=lambda state: SKIP)
        self.loader = torch.utils.data.DataLoader(torch.ones(7) if dataset is None else dataset)
        args = SimpleNamespace(gradient_accumulation_steps=num_accumulated, ignore_data_skip=ignore_data_skip)
        self.control = SimpleNamespace(should_evaluate=False)
        self.given = args, SimpleNamespace(global_step=global_step), self.control

    def report(self, *events):
        for event in events:
            getattr(self.callback, f"on_{event}")(*self.given, model=None, train_dataloader=self.loader)

    @property
    def is_evaluating(self):
        return self.callback.run.is_evaluating


@pytest.fixture
def trainer(tmp_path):
    """A Trainer in its first epoch, before its first step, and the iterator of its data."""
    trainer = Trainer(tmp_path)
    trainer.report("train_begin", "epoch_begin")
    trainer.data = iter(trainer.loader)
    next(trainer.data)
    yield trainer
    trainer.report("train_end")
    assert not trainer.callback.run.is_running


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, 0, 0, 7)),
        ({"global_step": 9}, (9, 1, 2, 7)),
        ({"global_step": 9, "num_accumulated": 2}, (9, 2, 1, 4)),
        ({"global_step": 9, "num_accumulated": 2, "ignore_data_skip": True}, (9, 2, 0, 4)),
        ({"global_step": 9, "dataset": Stream()}, (9, 0, 0, None)),
    ],
)
def test_a_training_counts_the_optimizers_steps_from_its_checkpoint(tmp_path, options, expected):
    trainer = Trainer(tmp_path, **options)
    trainer.report("train_begin")
    state = trainer.callback.run.profiler.state
    at = state.timestamp
    trainer.report("epoch_begin")
    found = at.batch, at.epoch, at.batch_in_epoch, state.dataloader_len
    trainer.report(*["step_begin", "step_end"] * 3, "epoch_end", "train_end")
    assert found == expected
    steps = frame_of(tmp_path)
    assert steps["step"].to_list() == list(range(expected[0], expected[0] + 3))
    assert steps["epoch"].to_list() == [expected[1]] * 3


def test_fetches_of_the_trainings_own_data_are_no_evaluation(trainer):
    for _ in range(2):
        assert not trainer.is_evaluating
        trainer.report("step_begin")
        next(iter(trainer.loader))  # within a step
        assert not trainer.is_evaluating
        trainer.report("step_end")
        next(trainer.data)
    trainer.report("step_begin", "step_end", "epoch_end", "epoch_begin")
    trainer.data = iter(trainer.loader)
    for _ in range(2):
        next(trainer.data)
        assert not trainer.is_evaluating
        trainer.report("step_begin", "step_end")


@pytest.mark.parametrize("end", ["evaluate", "predict", "step_begin"])
def test_a_fetch_of_other_data_between_two_steps_starts_an_evaluation(trainer, end):
    trainer.report("step_begin", "step_end")
    others = iter(trainer.loader)
    next(others)
    assert trainer.is_evaluating
    trainer.report(end)
    assert not trainer.is_evaluating


def test_an_evaluation_starts_when_it_is_due_whatever_is_fetched(trainer):
    trainer.control.should_evaluate = True
    next(iter(trainer.loader))
    assert trainer.is_evaluating
    trainer.control.should_evaluate = False
    trainer.report("evaluate")
    next(trainer.data)
    assert not trainer.is_evaluating
    trainer.report("step_begin", "step_end", "epoch_end")
    next(trainer.data)  # no step of the training is left
    assert trainer.is_evaluating
    trainer.report("evaluate", "prediction_step")
    assert trainer.is_evaluating
