"""StackSampler in DataLoader workers: their lines reach the trace, and loaders work as they do without it."""

import gc
import os
import signal
import threading
import time
from functools import partial

import pytest

from kinetoscope import ProfilerAction, StackSampler
from kinetoscope.core.paths.source_files import source_name
from kinetoscope.errors import SettingsError
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import MemoryTraceHandler

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info  # noqa: E402

HERE = source_name(__file__)


class Pictures(Dataset):
    """Items that take a while, and say what the user's init function did in their worker."""

    greeting = ""

    def __len__(self):
        return 24

    def __getitem__(self, place):
        time.sleep(0.02)
        return place, Pictures.greeting


class Stream(IterableDataset):
    def __iter__(self):
        for place in range(get_worker_info().id, 24, 2):
            time.sleep(0.02)
            yield place, ""


def greet(worker):
    Pictures.greeting = f"hello from {worker}"


def fail(worker):
    raise SettingsError(f"worker {worker} has no data")


def line_of(function, offset):
    return f"{HERE}({function.__code__.co_firstlineno + offset}): {function.__name__}"


SLOW = line_of(Pictures.__getitem__, 1)


def call(function, *arguments):
    return function(*arguments)


def loader_of(dataset=None, **options):
    return DataLoader(dataset or Pictures(), **({"batch_size": 2, "num_workers": 2} | options))


def always(state):
    return ProfilerAction.ACTIVE


def sampled(loaders, folder, *, num_epochs=1):
    """Return the samples recorded while each loader is iterated over, and the batches."""
    handler, batches = MemoryTraceHandler(), []
    profiler = Profiler(always, handler, sources=[StackSampler(interval_ms=2)], spool_folder=folder, strict=True)
    with profiler:
        for loader in loaders * num_epochs:
            batches += list(profiler.batches(loader))
    return handler, batches


def tracks_of(handler, name):
    """Return the tracks with spans of a name."""
    return {thread.name for cycle in handler.cycles for thread, _, span in cycle.records() if span.name == name}


@pytest.mark.parametrize(("method", "num_workers"), [("fork", 2), ("forkserver", 1)])
def test_the_lines_of_workers_are_in_the_trace_of_their_rank(tmp_path, method, num_workers):
    loader = loader_of(num_workers=num_workers, multiprocessing_context=method, worker_init_fn=greet)
    handler, batches = sampled([loader], tmp_path)
    workers = range(num_workers)
    assert tracks_of(handler, SLOW) == {f"DataLoader worker {worker}: samples of MainThread" for worker in workers}
    assert {greeting for _, greetings in batches for greeting in greetings} == {f"hello from {one}" for one in workers}
    assert sorted(place for places, _ in batches for place in places.tolist()) == list(range(24))
    assert loader.worker_init_fn is greet


def test_workers_that_stay_and_several_loaders_are_sampled(tmp_path):
    loaders = [loader_of(persistent_workers=True), loader_of(Stream())]
    handler, _ = sampled(loaders, tmp_path, num_epochs=2)
    assert len(tracks_of(handler, SLOW)) == 2
    assert len(tracks_of(handler, line_of(Stream.__iter__, 2))) == 2


def test_the_last_sample_of_a_worker_ends_with_it(tmp_path):
    handler = MemoryTraceHandler()
    profiler = Profiler(always, handler, sources=[StackSampler(interval_ms=2)], spool_folder=tmp_path, strict=True)
    with profiler:
        for _ in profiler.batches(loader_of(num_workers=1)):
            pass
        ended_ns = time.monotonic_ns()  # the loader has waited for its worker
        time.sleep(0.2)
    records = [(thread.name, one) for cycle in handler.cycles for thread, one, _ in cycle.records()]
    ends = [record.end for name, record in records if name.startswith("DataLoader worker 0: samples")]
    assert ends
    assert max(ends) <= ended_ns


def test_frames_of_the_parent_are_not_among_those_of_a_forked_worker(tmp_path):
    handler, _ = sampled([loader_of(num_workers=1)], tmp_path)
    records = [row for cycle in handler.cycles for row in cycle.records()]
    of_worker = [name.name for thread, _, name in records if thread.name.startswith("DataLoader worker 0")]
    assert SLOW in of_worker
    of_item = [name for name in of_worker if name.startswith(HERE) and name.endswith(": __getitem__")]
    assert not any("popen_fork" in name or HERE in name for name in of_worker if name not in of_item)


def test_an_error_of_the_users_init_function_is_theirs(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="has no data"):
        sampled([loader_of(worker_init_fn=fail)], tmp_path)
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)  # as long it waits for such workers
    gc.collect()


def test_after_the_run_dataloader_is_as_it_was(tmp_path):
    before = DataLoader.__iter__
    loader = loader_of(num_workers=0)
    sampled([loader], tmp_path)
    assert DataLoader.__iter__ is before
    assert loader.worker_init_fn is None


def test_without_workers_dataloader_is_left_alone(tmp_path):
    before = DataLoader.__iter__
    with Profiler(
        always, MemoryTraceHandler(), sources=[StackSampler(workers=False)], spool_folder=tmp_path
    ) as profiler:
        for _ in profiler.batches(range(2)):
            assert DataLoader.__iter__ is before


def test_other_code_that_replaces_dataloaders_method_meanwhile_keeps_it(tmp_path, monkeypatch):
    before = DataLoader.__iter__
    with Profiler(always, MemoryTraceHandler(), sources=[StackSampler()], spool_folder=tmp_path) as profiler:
        for _ in profiler.batches(range(1)):
            theirs = partial(call, DataLoader.__iter__)
            monkeypatch.setattr(DataLoader, "__iter__", theirs)
    assert DataLoader.__iter__ is theirs
    assert len(list(theirs(loader_of(num_workers=0)))) == 12
    monkeypatch.undo()
    DataLoader.__iter__ = before


def test_a_worker_that_is_killed_fails_as_without_a_sampler_and_the_rest_is_saved(tmp_path):
    handler = MemoryTraceHandler()
    profiler = Profiler(always, handler, sources=[StackSampler(interval_ms=2)], spool_folder=tmp_path)
    # It may die before it has handed its last batch over, and torch's error is another one then.
    with pytest.raises((RuntimeError, ConnectionError, EOFError)), profiler:
        iterator = iter(loader_of(Dying(), num_workers=1))
        for _ in profiler.batches(iterator):
            pass
    assert tracks_of(handler, SLOW) == {"DataLoader worker 0: samples of MainThread"}


class Dying(Pictures):
    def __getitem__(self, place):
        if place == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(place)


class Threads(Pictures):
    def __getitem__(self, place):
        time.sleep(0.05)
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("samples of")]


def test_workers_that_outlive_the_run_stop_sampling(tmp_path):
    loader = loader_of(Threads(), num_workers=1, batch_size=None, persistent_workers=True)
    _, batches = sampled([loader], tmp_path)
    assert batches[0] == ["samples of MainThread"]
    assert list(loader)[-1] == []
