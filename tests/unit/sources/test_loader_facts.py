"""LoaderFacts: what is recorded of DataLoaders, and what is left behind."""

import gc
import weakref

import pytest

import kinetoscope
from kinetoscope import JSONTraceHandler, LoaderFacts, ProfilerAction, cyclic_schedule
from kinetoscope.analysis.cpu.loop import TrainingLoop
from kinetoscope.analysis.windows.window_reader import read_recorded_windows
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import MemoryTraceHandler

data = pytest.importorskip("torch.utils.data")

BATCHES = [ProfilerAction.SKIP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE]


class Rows(data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index >= 12:
            raise IndexError
        return index


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(12))


def record(loop, schedule=None):
    """Return the facts noted while ``loop(profiler)`` ran; of each three batches, the last two are recorded."""
    handler = MemoryTraceHandler()
    schedule = schedule or (lambda state: BATCHES[state.timestamp.batch % 3])
    with Profiler(schedule, handler, sources=[LoaderFacts()], strict=True) as profiler:
        loop(profiler)
    return [event.args for event in handler.events("loader")]


def over(loader):
    def loop(profiler):
        for _ in profiler.batches(loader):
            pass

    return loop


def test_a_loader_is_recorded_once_in_a_window_though_its_loop_began_before():
    loader = data.DataLoader(Rows(), batch_size=4)
    facts = {"batch_size": 4, "dataset": "Rows", "num_workers": 0, "persistent_workers": False, "pin_memory": False}
    assert record(over(loader)) == [facts | {"tensors": 1, "bytes": 32}]


def collate_into_a_dict(rows):
    torch = pytest.importorskip("torch")
    return {"x": torch.zeros(len(rows), 5), "pair": (torch.zeros(len(rows)), [torch.zeros(2, dtype=torch.int64)])}, "id"


class Batch(list):
    def __iter__(self):
        raise AssertionError("code of the user's ran")


def collate_into_a_class_of_the_users(rows):
    return {"x": Batch(rows)}


def test_a_batch_is_measured_wherever_its_tensors_are():
    (facts,) = record(over(data.DataLoader(Rows(), batch_size=4, collate_fn=collate_into_a_dict)))
    assert (facts["tensors"], facts["bytes"]) == (3, 4 * 5 * 4 + 4 * 4 + 2 * 8)


def test_a_batch_with_objects_of_the_users_has_no_known_size():
    (facts,) = record(over(data.DataLoader(Rows(), batch_size=4, collate_fn=collate_into_a_class_of_the_users)))
    assert facts.keys().isdisjoint({"tensors", "bytes"})


def test_workers_are_recorded_with_what_they_prefetch():
    loader = data.DataLoader(Rows(), batch_size=4, num_workers=1, prefetch_factor=3, persistent_workers=True)
    (facts,) = record(over(loader))
    assert (facts["num_workers"], facts["prefetch_factor"], facts["persistent_workers"]) == (1, 3, True)


def test_a_report_has_what_was_noted_in_a_batch_that_warms_up(tmp_path):
    """Where the first fetch of a window is."""
    loader = data.DataLoader(Rows(), batch_size=2)
    schedule = cyclic_schedule(skip_first=1, warmup=1, active=2, per="run")
    handler = JSONTraceHandler(str(tmp_path / "traces"))
    with Profiler(schedule, handler, sources=[LoaderFacts()], strict=True, quiet=True) as profiler:
        over(loader)(profiler)
    (window,) = read_recorded_windows(kinetoscope.load(tmp_path / "traces" / "merged_trace.json"))
    assert len(window.steps) == 2
    assert TrainingLoop(window).loader.settings["batch_size"] == 2


def test_a_stream_without_batches_has_no_batch_size():
    (facts,) = record(over(data.DataLoader(Stream(), batch_size=None)), lambda state: ProfilerAction.ACTIVE)
    assert facts["dataset"] == "Stream"
    assert "batch_size" not in facts


def test_a_loader_that_is_not_the_profilers_is_recorded_as_well():
    other = data.DataLoader(Stream(), batch_size=2)

    def loop(profiler):
        for _ in profiler.batches(range(3)):
            list(other)

    assert [facts["dataset"] for facts in record(loop)] == ["Stream"]


def test_torchs_own_method_is_active_outside_of_windows_and_afterwards():
    kind = data.dataloader._BaseDataLoaderIter
    before, inside = kind.__next__, []

    def loop(profiler):
        inside.append(kind.__next__)
        for _ in profiler.batches(range(3)):
            inside.append(kind.__next__)

    record(loop)
    loops_own, skipped, *recorded = inside
    assert skipped is loops_own
    assert loops_own not in recorded
    assert kind.__next__ is before


def test_a_fetch_that_other_code_has_wrapped_meanwhile_stays_wrapped():
    kind = data.dataloader._BaseDataLoaderIter
    before = kind.__next__

    def loop(profiler):
        for number in profiler.batches(range(3)):
            if number == 1:
                below = kind.__next__
                kind.__next__ = lambda iterator, below=below: below(iterator)
                wrapped.append(kind.__next__)

    wrapped = []
    try:
        record(loop)
        assert kind.__next__ is wrapped[0]
        assert list(data.DataLoader(Stream(), batch_size=None)) == list(range(12))
    finally:
        kind.__next__ = before


def test_no_loader_and_no_dataset_is_kept_alive():
    gone = []

    def loop(profiler):
        for _ in profiler.batches(range(3)):
            rows = Stream()
            gone.append(weakref.ref(rows))
            list(data.DataLoader(rows, batch_size=2))
            del rows
            gc.collect()
            assert gone[-1]() is None

    assert len(record(loop)) == 1


class Guarded:
    """A sampler that shows nothing of itself."""

    __dict__ = property(lambda self: 1 / 0)

    def __iter__(self):
        return iter([[0, 1], [2]])


class NamelessKind(type):
    def __getattribute__(cls, name):
        if name == "__qualname__":
            raise RuntimeError("no name for you")
        return super().__getattribute__(name)


class Nameless(metaclass=NamelessKind):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index


def test_no_code_of_a_dataset_or_a_sampler_is_called_for_the_facts():
    found = record(over(data.DataLoader(Nameless(), batch_sampler=Guarded())))
    assert found[0]["dataset"] == "Nameless"
    assert "batch_size" not in found[0]


def test_the_error_of_a_dataset_is_the_users_own():
    class Broken(data.IterableDataset):
        def __iter__(self):
            raise ValueError("broken row")
            yield

    with pytest.raises(ValueError, match="broken row"):
        record(over(data.DataLoader(Broken(), batch_size=None)), lambda state: ProfilerAction.ACTIVE)


class Unhashable(data.dataloader._SingleProcessDataLoaderIter):
    """An iterator that no set can hold, so that we cannot note that we have seen it."""

    __hash__ = None


class Loader(data.DataLoader):
    def _get_iterator(self):
        return Unhashable(self)


def test_internal_error_in_a_fetch_is_logged_once_and_batches_still_arrive(caplog):
    handler, fetched = MemoryTraceHandler(), []
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[LoaderFacts()]) as profiler:
        for _ in profiler.batches(range(2)):
            fetched += [len(batch) for batch in Loader(Rows(), batch_sampler=[[0, 1], [2]])]
    assert (fetched, handler.events("loader")) == ([2, 1] * 2, [])
    assert len([text for text in caplog.messages if "LoaderFacts failed and is switched off" in text]) == 1
