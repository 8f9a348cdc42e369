"""Lightning's events, as its Trainer sends them: actions, steps of the optimizer, validations and stages."""

from types import SimpleNamespace

import pytest

import kinetoscope
from kinetoscope.integrations.lightning import KinetoscopeCallback, KinetoscopeProfiler
from kinetoscope.testing import MemoryTraceHandler
from support.autoinstrumented_runs import frame_of

torch = pytest.importorskip("torch")
OPTIONS = {"torch": False, "system": False, "quiet": True, "schedule": lambda state: kinetoscope.ProfilerAction.ACTIVE}
UNRECORDED = {**OPTIONS, "schedule": lambda state: kinetoscope.ProfilerAction.SKIP}


class PassThroughProfiler:
    """Lightning's profiler without effect, known by its name."""

    dirpath = "of Lightning"


@pytest.fixture
def trainer():
    """A Trainer that accumulates 2 batches, and has 5 of them in an epoch."""
    progress = SimpleNamespace(current=SimpleNamespace(ready=0))
    return SimpleNamespace(
        accumulate_grad_batches=2,
        callbacks=["of the user"],
        current_epoch=0,
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress)),
        global_step=0,
        num_training_batches=5,
        profiler=PassThroughProfiler(),
        validating=False,
    )


def set_up(trainer, stage, folder, **options):
    profiler = KinetoscopeProfiler(folder, **OPTIONS, **options)
    profiler._lightning_module = SimpleNamespace(trainer=trainer)  # as the Trainer does
    profiler.setup(stage)
    return profiler


def train_epoch(callback, trainer, num_batches=5):
    callback.on_train_epoch_start(trainer, None)
    for number in range(num_batches):
        trainer.global_step += number % 2 or number == 4
        callback.on_train_batch_end(trainer, None, None, None, number)
    callback.on_train_epoch_end(trainer, None)
    trainer.current_epoch += 1


def test_only_a_fit_is_profiled_and_its_callback_is_added_once(trainer, tmp_path):
    for stage in ("validate", "test", "predict"):
        set_up(trainer, stage, tmp_path)
    assert trainer.callbacks == ["of the user"]
    profiler = set_up(trainer, "fit", tmp_path)
    profiler.setup("fit")
    callback, *others = trainer.callbacks
    assert (type(callback), others) == (KinetoscopeCallback, ["of the user"])
    assert not callback.run.is_running


def test_a_step_is_one_of_the_optimizers(trainer, tmp_path):
    callback = KinetoscopeCallback(tmp_path, **UNRECORDED)
    callback.on_train_start(trainer, None)
    train_epoch(callback, trainer)
    train_epoch(callback, trainer, num_batches=3)
    callback.on_fit_end(trainer, None)
    steps = frame_of(tmp_path)
    assert steps["step"].to_list() == [0, 1, 2, 3]
    assert steps["epoch"].to_list() == [0, 0, 0, 1]


@pytest.mark.parametrize(("num_batches", "length"), [(5, 3), (4, 2), (float("inf"), None)])
def test_a_resumed_fit_counts_from_its_checkpoint(trainer, tmp_path, num_batches, length):
    trainer.global_step, trainer.current_epoch, trainer.num_training_batches = 8, 2, num_batches
    trainer.fit_loop.epoch_loop.batch_progress.current.ready = 4
    callback = KinetoscopeCallback(tmp_path, **UNRECORDED)
    callback.on_train_start(trainer, None)
    state = callback.run.profiler.state
    at = state.timestamp
    assert (at.batch, at.epoch, at.batch_in_epoch, state.dataloader_len) == (8, 2, 2, length)
    callback.on_train_batch_end(trainer, None, None, None, 4)
    trainer.global_step = 9
    callback.on_train_batch_end(trainer, None, None, None, 5)
    callback.on_exception(trainer, None, ValueError())
    assert frame_of(tmp_path)["step"].to_list() == [8]


def test_actions_of_a_fit_are_spans_in_whatever_order_they_end(trainer, tmp_path):
    handler = MemoryTraceHandler()
    profiler = set_up(trainer, "fit", tmp_path, handlers=handler)
    callback = trainer.callbacks[0]
    with profiler.profile("before"):
        callback.on_train_start(trainer, None)
    with profiler.profile("outer") as name:
        for action in ("first", "second", "left by an exception", "[_TrainingEpochLoop].train_dataloader_next"):
            profiler.start(action)
        for action in ("[_TrainingEpochLoop].train_dataloader_next", "first", "never begun", "second"):
            profiler.stop(action)
    assert name == "outer"
    for action in ("[Callback]KinetoscopeCallback.on_train_batch_end", "again", "again"):
        with profiler.profile(action):
            pass
    assert profiler.summary() == ""
    callback.on_fit_end(trainer, None)
    with profiler.profile("after"):
        pass
    spans = {name: (begin, end) for name, begin, end in handler.spans()}
    assert {*spans} == {"outer", "first", "second", "left by an exception", "again"}
    assert len(handler.spans("again")) == 2
    assert spans["first"][1] < spans["second"][1] < spans["outer"][1] < spans["again"][0]
    assert spans["outer"][0] < spans["first"][0] < spans["second"][0]
    assert spans["left by an exception"][1] > spans["again"][1]
    assert trainer.profiler.dirpath == "of Lightning"


def test_with_the_callback_the_profiler_without_effect_is_replaced_until_the_fit_ends(trainer, tmp_path):
    handler, original = MemoryTraceHandler(), trainer.profiler
    callback = KinetoscopeCallback(tmp_path, **OPTIONS, handlers=handler)
    for _ in range(2):
        callback.on_train_start(trainer, None)
        assert trainer.profiler is not original
        assert trainer.profiler.dirpath == "of Lightning"
        with trainer.profiler.profile("action"):
            pass
        callback.on_exception(trainer, None, ValueError())
        callback.on_fit_end(trainer, None)
        assert trainer.profiler is original
        assert not callback.run.is_running
    assert len(handler.spans("action")) == 2
    trainer.profiler = of_user = SimpleNamespace()
    callback.on_train_start(trainer, None)
    assert trainer.profiler is of_user
    callback.on_fit_end(trainer, None)
    assert trainer.profiler is of_user


def test_a_validation_starts_when_it_fetches_and_ends_when_that_is_reported(trainer, tmp_path):
    loader = torch.utils.data.DataLoader(torch.ones(4))
    callback = KinetoscopeCallback(tmp_path, **UNRECORDED)
    callback.on_train_start(trainer, None)
    callback.on_train_epoch_start(trainer, None)
    next(iter(loader))
    assert not callback.run.is_evaluating
    trainer.validating = True
    next(iter(loader))
    assert callback.run.is_evaluating
    callback.on_validation_end(trainer, None)
    assert not callback.run.is_evaluating
    callback.on_validation_start(trainer, None)
    assert callback.run.is_evaluating
    callback.on_fit_end(trainer, None)
    next(iter(loader))
    assert not callback.run.is_running


def test_the_summary_is_that_of_the_last_fit_that_has_ended(trainer, tmp_path):
    profiler = set_up(trainer, "fit", tmp_path)
    assert profiler.summary() == ""
    callback = trainer.callbacks[0]
    callback.on_train_start(trainer, None)
    train_epoch(callback, trainer)
    callback.on_fit_end(trainer, None)
    assert profiler.summary().startswith(f"<kinetoscope.RunReport of {tmp_path.name}: 1 of 1 ranks, 3 steps")
