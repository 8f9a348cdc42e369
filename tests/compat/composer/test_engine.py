"""Our callbacks in Composer's real Engine, as its own callbacks are used: started, ended and closed more than once."""

import threading

import pytest
import torch
from composer.core import Engine, Event, State
from composer.devices import DeviceCPU
from composer.loggers import Logger

from kinetoscope.composer import JSONTraceHandler, Profiler, ProfilerAction, SystemProfiler, TorchProfiler
from support.composer_run.trainer import make_batches, make_model

CALLBACKS = [JSONTraceHandler, SystemProfiler, TorchProfiler]


@pytest.fixture
def state():
    model = make_model()
    state = State(
        model=model,
        device=DeviceCPU(),
        rank_zero_seed=0,
        run_name="run",
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
        device_train_microbatch_size=1,
        max_duration="10ep",
    )
    state.set_dataloader(make_batches(2), "train")
    state.profiler = Profiler(lambda state: ProfilerAction.SKIP, [], torch_prof_memory_filename=None)
    state.profiler.bind_to_state(state)
    return state


def make_engine(state, kind):
    if not any(type(callback) is kind for callback in state.callbacks[-1:]):
        state.callbacks.append(kind())
    return Engine(state, Logger(state))


def our_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kinetoscope")]


@pytest.mark.parametrize("kind", CALLBACKS)
def test_a_run_may_start_and_end_fitting_many_times(state, kind):
    engine = make_engine(state, kind)
    engine.run_event(Event.INIT)
    for _ in range(3):
        engine.run_event(Event.FIT_START)
        engine.run_event(Event.FIT_END)
    engine.close()
    assert not our_threads()


@pytest.mark.parametrize("kind", CALLBACKS)
def test_closing_twice_is_closing_once(state, kind):
    engine = make_engine(state, kind)
    engine.run_event(Event.INIT)
    engine.close()
    engine.close()
    for callback in state.callbacks:
        callback.close(state, engine.logger)
        callback.post_close()
    assert not our_threads()


@pytest.mark.parametrize("kind", CALLBACKS)
def test_another_engine_may_follow_a_closed_one(state, kind):
    for _ in range(2):
        engine = make_engine(state, kind)
        engine.run_event(Event.INIT)
        engine.run_event(Event.FIT_START)
        engine.run_event(Event.FIT_END)
        engine.close()
        engine.close()
    assert not our_threads()


def test_an_engine_that_never_fits_leaves_nothing(state):
    engine = Engine(state, Logger(state))
    engine.run_event(Event.INIT)
    engine.close()
    assert not our_threads()


def test_callbacks_have_a_state_for_checkpoints(state):
    for callback in state.callbacks:
        callback.load_state_dict(callback.state_dict())
