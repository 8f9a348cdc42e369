"""The plain loop, as people write it: epochs, steps, evaluations, loops that end early."""

import asyncio
import contextlib
import json
import threading
from types import SimpleNamespace

import pytest

from kinetoscope import Callback, Event, JSONTraceHandler, ProfilerAction, active_profiler, cyclic_schedule
from kinetoscope.errors import ProfilerStateError
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import FakeClock, MemoryTraceHandler
from support.trace_processor.trace_processor import load

ALWAYS = lambda state: ProfilerAction.ACTIVE  # noqa: E731
NEVER = lambda state: ProfilerAction.SKIP  # noqa: E731


def run_batches(profiler, num_batches, epochs=1):
    for _ in range(epochs):
        for _ in profiler.batches(range(num_batches)):
            pass


def batches_of(handler, name="event/batch"):
    return [
        record.batch
        for cycle in handler.cycles
        for _, record, record_name in cycle.records()
        if record_name.name == name
    ]


def ends(handler):
    return [(int(cycle.timestamp.epoch), int(cycle.timestamp.batch)) for cycle in handler.cycles]


class Diary(Callback):
    """Notes the events."""

    def __init__(self):
        self.events = []

    def run_event(self, event, state, logger=None):
        raise AssertionError("the profiler calls the methods themselves")


for _event in Event:
    setattr(Diary, _event.value, lambda self, state, logger, name=_event.value: self.events.append(name))


def test_a_loop_fires_the_events_of_a_run_in_order():
    diary = Diary()
    with Profiler(NEVER, [], sources=[diary]) as profiler:
        run_batches(profiler, 2)
    batch = ["before_dataloader", "after_dataloader", "batch_start", "batch_end"]
    epoch = ["epoch_start", *batch, *batch, "before_dataloader", "epoch_end"]
    assert diary.events == ["init", "fit_start", *epoch, "fit_end"]


def test_batches_waits_for_data_in_a_span_of_its_own():
    clock, handler = FakeClock(), MemoryTraceHandler()

    def slow():
        for item in range(2):
            clock.advance(1000)
            yield item

    with Profiler(ALWAYS, handler, clock=clock) as profiler:
        for _ in profiler.batches(slow()):
            clock.advance(300)
    assert [end - begin for _, begin, end in handler.spans("event/dataloader")] == [1000, 1000]
    assert [end - begin for _, begin, end in handler.spans("event/batch")] == [300, 300]
    assert [end - begin for _, begin, end in handler.spans("event/epoch")] == [2600]


def test_step_counts_batches_samples_and_tokens():
    with Profiler(NEVER) as profiler:
        with profiler.epoch(length=2):
            profiler.step(samples=8, tokens=100)
            profiler.step(samples=8, tokens=100)
        timestamp = profiler.state.timestamp
    assert (timestamp.epoch, timestamp.batch, timestamp.batch_in_epoch) == (1, 2, 0)
    assert (timestamp.sample, timestamp.token) == (16, 200)


def test_step_records_the_batches_that_batches_would():
    handler = MemoryTraceHandler()
    with Profiler(cyclic_schedule(skip_first=1, warmup=1, active=2), handler) as profiler:
        for _ in range(2):
            with profiler.epoch():
                for _ in range(6):
                    profiler.step()
    assert [int(cycle.timestamp.batch) for cycle in handler.cycles] == [4, 10]
    assert len(handler.spans("event/batch")) == 6


def test_loop_left_by_break_completes_its_batch_and_the_next_is_a_new_epoch():
    with Profiler(NEVER) as profiler:
        for batch in profiler.batches(range(10)):
            if batch == 3:
                break
        assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (0, 4)
        run_batches(profiler, 2)
        assert profiler.state.timestamp.epoch == 2


def test_a_batch_is_not_kept_alive_while_the_next_one_is_loaded():
    import weakref

    class Tensor:
        pass

    alive = []

    def load():
        for _ in range(3):
            alive.append(sum(ref() is not None for ref in refs))
            item = Tensor()
            refs.append(weakref.ref(item))
            yield item
            del item

    refs = []
    with Profiler(NEVER) as profiler:
        for batch in profiler.batches(load()):
            del batch
    assert alive == [0, 0, 0]


def test_a_loop_outside_the_profiler_raises_an_error_that_says_where_it_belongs():
    profiler = Profiler(NEVER)
    with pytest.raises(ProfilerStateError, match="with profiler"):
        next(iter(profiler.batches(range(3))))


def test_nested_epoch_is_ignored_with_a_warning_and_training_continues(caplog):
    with Profiler(NEVER) as profiler, profiler.epoch():
        with profiler.epoch():
            profiler.step()
    assert "epochs do not nest" in caplog.text
    assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (1, 1)


def test_an_error_of_the_data_loader_is_raised():
    def broken():
        yield 1
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        with Profiler(ALWAYS, MemoryTraceHandler()) as profiler:
            for _ in profiler.batches(broken()):
                pass


# -- loops that end early ----------------------------------------------------------------------------------------


def test_early_ended_loop_still_referenced_ends_there_and_the_next_is_an_epoch():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        held = []
        for _ in range(3):
            held.append(profiler.batches(range(10)))
            for batch in held[-1]:
                if batch == 3:
                    break
        assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (2, 12)
    assert batches_of(handler) == list(range(12))
    assert len(handler.spans("event/epoch")) == 3


def test_a_progress_bar_around_a_loop_that_is_left_changes_nothing():
    class Bar:  # like tqdm: it holds the iterable, and iterates in a generator of its own
        def __init__(self, iterable):
            self.iterable = iterable
            self.total = len(iterable)

        def __iter__(self):
            yield from self.iterable

    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        for _ in range(2):
            bar = Bar(profiler.batches(range(5)))
            for batch in bar:
                if batch == 1:
                    break
    assert bar.total == 5
    assert batches_of(handler) == [0, 1, 2, 3]


def test_referenced_iterator_ends_when_the_next_loop_over_its_data_starts():
    data, handler = list(range(5)), MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        held = iter(profiler.batches(data))
        assert [next(held), next(held)] == [0, 1]
        assert list(profiler.batches(data)) == data
        assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (2, 7)
        assert list(held) == [2, 3, 4], "a loop that continues the first one gets the rest"
    assert batches_of(handler)[:7] == list(range(7))
    assert handler.spans("event/eval") == []


def test_records_in_a_window_of_many_epochs_have_their_epoch():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        run_batches(profiler, 2, epochs=3)
    (cycle,) = handler.cycles
    begins = [record.begin for _, record, name in cycle.records() if name.name == "event/batch"]
    assert [cycle.epoch_at(begin_ns) for begin_ns in sorted(begins)] == [0, 0, 1, 1, 2, 2]


def test_resumed_loop_that_counted_as_left_is_a_new_epoch():
    diary, data = Diary(), range(3)
    with Profiler(NEVER, [], sources=[diary]) as profiler:
        first = iter(profiler.batches(data))
        next(first)
        assert list(profiler.batches(data)) == [0, 1, 2]
        assert list(first) == [1, 2]
        assert diary.events.count("epoch_start") == diary.events.count("epoch_end") == 3


def test_batches_are_yielded_one_by_one_on_next():
    with Profiler(NEVER) as profiler:
        batches = profiler.batches(range(3))
        assert next(batches) == 0
        assert list(batches) == [1, 2]
        assert profiler.state.timestamp.batch == 3


def test_the_same_batches_may_be_iterated_over_in_every_epoch():
    with Profiler(NEVER) as profiler:
        batches = profiler.batches(range(3))
        for _ in range(2):
            assert list(batches) == [0, 1, 2]
        assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (2, 6)


@pytest.mark.parametrize("how", ["break", "error", "ctrl-c while waiting"])
def test_window_saved_on_leaving_the_loop_belongs_to_its_epoch(how):
    def data():
        yield from range(3)
        raise KeyboardInterrupt

    handler = MemoryTraceHandler()
    with contextlib.suppress(ValueError, KeyboardInterrupt), Profiler(ALWAYS, handler) as profiler:
        run_batches(profiler, 4)
        for batch in profiler.batches(data() if how == "ctrl-c while waiting" else range(5)):
            if batch == 2 and how == "break":
                break
            if batch == 2 and how == "error":
                raise ValueError
    assert ends(handler) == [(1, 7)]


def test_active_period_ended_by_a_break_is_saved_for_its_epoch():
    handler = MemoryTraceHandler()
    with Profiler(cyclic_schedule(skip_first=1, warmup=1, active=4), handler) as profiler:
        for batch in profiler.batches(range(20)):
            if batch == 3:
                break
        run_batches(profiler, 20)
    assert ends(handler) == [(0, 4), (1, 10)]


def test_loop_after_the_end_of_the_run_continues_unrecorded():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        run_batches(profiler, 2)
    assert list(profiler.batches(range(3))) == [0, 1, 2]
    profiler.step()
    with profiler.epoch(), profiler.eval():
        profiler.step()
    assert batches_of(handler) == [0, 1]


# -- evaluation --------------------------------------------------------------------------------------------------


def test_a_loop_inside_a_batch_is_an_evaluation_and_counts_nothing():
    handler, diary = MemoryTraceHandler(), Diary()
    with Profiler(ALWAYS, handler, sources=[diary]) as profiler:
        for batch in profiler.batches(range(3)):
            if batch == 1:
                assert list(profiler.batches(range(2))) == [0, 1]
                assert profiler.state.timestamp.batch == 1
    assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (1, 3)
    assert batches_of(handler) == [0, 1, 2]
    assert batches_of(handler, "event/eval") == [1]
    assert batches_of(handler, "event/eval_batch") == [1, 1]
    evaluation = ["eval_start", *["eval_batch_start", "eval_batch_end"] * 2, "eval_end"]
    begin = diary.events.index("eval_start")
    assert diary.events[begin : begin + 6] == evaluation
    assert diary.events.count("batch_start") == diary.events.count("batch_end") == 3


def test_an_evaluation_is_recorded_as_the_batch_it_began_in():
    handler = MemoryTraceHandler()
    with Profiler(cyclic_schedule(skip_first=2, warmup=0, active=2), handler) as profiler:
        for _ in profiler.batches(range(6)):
            for _ in profiler.batches(range(2)):
                with profiler.marker("validate"):
                    pass
    assert batches_of(handler, "validate") == batches_of(handler, "event/eval_batch") == [2, 2, 3, 3]


def test_between_batches_only_the_span_of_an_evaluation_is_recorded():
    handler, paused = MemoryTraceHandler(), []

    class Source(Callback):
        def eval_start(self, state, logger):
            paused.append(state.profiler.run.is_paused)

        def eval_end(self, state, logger):
            paused.append(state.profiler.run.is_paused)

    with Profiler(ALWAYS, handler, sources=[Source()]) as profiler:
        run_batches(profiler, 2)
        with profiler.eval():
            for _ in profiler.batches(range(3)):
                with profiler.marker("validate"):
                    pass
        run_batches(profiler, 2)
    assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (2, 4)
    assert len(handler.spans("event/eval")) == 1
    assert handler.spans("validate") == handler.spans("event/eval_batch") == []
    assert batches_of(handler) == [0, 1, 2, 3]
    assert paused == [True, True]


@pytest.mark.parametrize("calls_step", [False, True])
def test_training_counts_its_batches_during_an_evaluation_on_another_thread(calls_step):
    handler = MemoryTraceHandler()
    begun, over = threading.Event(), threading.Event()

    def evaluate():
        with profiler.eval():
            begun.set()
            assert over.wait(10)
            run_batches(profiler, 2)

    with Profiler(ALWAYS, handler, strict=True) as profiler:
        thread = threading.Thread(target=evaluate)
        thread.start()
        assert begun.wait(10)
        for _ in range(2):
            for _ in range(3) if calls_step else profiler.batches(range(3)):
                if calls_step:
                    profiler.step()
        over.set()
        thread.join()
        assert profiler.state.timestamp.batch == 6
    assert batches_of(handler) == list(range(6))
    assert len(batches_of(handler, "event/eval")) == 1


def test_training_and_evaluation_may_be_alternating_tasks():
    handler = MemoryTraceHandler()

    async def train():
        for _ in range(2):
            for _ in profiler.batches(range(3)):
                await asyncio.sleep(0)

    async def evaluate():
        for _ in range(3):
            with profiler.eval():
                for _ in profiler.batches(range(2)):
                    await asyncio.sleep(0)

    async def both():
        await asyncio.gather(train(), evaluate(), evaluate())

    with Profiler(ALWAYS, handler, strict=True) as profiler:
        asyncio.run(both())
        assert profiler.state.timestamp.batch == 6
    assert batches_of(handler) == list(range(6))
    assert len(batches_of(handler, "event/eval")) == 6


def test_an_evaluation_that_fails_leaves_recording_as_it_was():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        run_batches(profiler, 1)
        with pytest.raises(ValueError, match="nan"), profiler.eval():
            raise ValueError("nan")
        run_batches(profiler, 1)
    assert batches_of(handler) == [0, 1]


def test_an_evaluation_that_is_left_open_does_not_swallow_the_next_epochs():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        validation = iter(profiler.batches(range(100)))
        for _ in range(2):
            for _ in profiler.batches(range(2)):
                next(validation, None)
    assert profiler.state.timestamp.epoch >= 1
    assert set(batches_of(handler)) == {0, 1, 2, 3}


def test_steps_inside_an_evaluation_do_not_count():
    with Profiler(NEVER) as profiler:
        profiler.step()
        with profiler.eval():
            profiler.step()
        assert profiler.state.timestamp.batch == 1


# -- loops that call step ----------------------------------------------------------------------------------------


def test_loop_of_steps_has_one_span_per_batch_and_the_first_starts_with_the_run():
    clock, handler = FakeClock(), MemoryTraceHandler()
    with Profiler(ALWAYS, handler, clock=clock) as profiler:
        for _ in range(3):
            clock.advance(500)
            profiler.step()
        clock.advance(70)
    assert [end - begin for _, begin, end in handler.spans("event/batch")] == [500, 500, 500]
    assert [end - begin for _, begin, end in handler.spans("event/epoch")] == [1570]
    assert ends(handler) == [(0, 3)]


@pytest.mark.parametrize("in_epochs", [False, True])
def test_batch_start_is_fired_once_for_each_batch(in_epochs):
    class Source(Callback):
        def __init__(self):
            self.started, self.ended = [], []

        def batch_start(self, state, logger):
            self.started.append(state.timestamp.batch)

        def batch_end(self, state, logger):
            self.ended.append(state.timestamp.batch)

    source = Source()
    with Profiler(ALWAYS, MemoryTraceHandler(), sources=[source]) as profiler:
        for _ in range(2):
            if in_epochs:
                with profiler.epoch():
                    [profiler.step() for _ in range(3)]
            else:
                [profiler.step() for _ in range(3)]
    assert source.started == [0, 1, 2, 3, 4, 5]
    assert source.ended == [1, 2, 3, 4, 5, 6]


def test_step_inside_a_loop_over_batches_adds_samples_and_counts_no_batch():
    with Profiler(NEVER) as profiler:
        for _ in profiler.batches(range(3)):
            profiler.step(samples=8, tokens=100)
        timestamp = profiler.state.timestamp
    assert (timestamp.batch, timestamp.sample, timestamp.token) == (3, 24, 300)


def test_a_run_without_any_loop_has_neither_epochs_nor_batches():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        with profiler.marker("work"):
            pass
    assert [name for name, _, _ in handler.spans()] == ["work"]


def test_batches_after_steps_and_steps_after_batches_all_count():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        profiler.step()
        profiler.step()
        run_batches(profiler, 2)
        profiler.step()
        run_batches(profiler, 1)
        timestamp = profiler.state.timestamp
    assert timestamp.batch == 6
    assert sorted(batches_of(handler)) == [0, 1, 2, 3, 4, 5]
    assert handler.spans("event/eval") == []


def test_an_epoch_around_a_loop_over_batches_is_one_epoch():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        for _ in range(2):
            with profiler.epoch():
                run_batches(profiler, 2)
        assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (2, 4)
    assert len(handler.spans("event/epoch")) == 2
    assert batches_of(handler) == [0, 1, 2, 3]


class SlowRows:
    """A data set whose rows take a microsecond each, on a fake clock."""

    def __init__(self, clock, num_rows):
        self.clock = clock
        self.num_rows = num_rows

    def __len__(self):
        return self.num_rows

    def __getitem__(self, index):
        if index >= self.num_rows:
            raise IndexError
        self.clock.advance(1000)
        return index


def test_the_wait_for_a_dataloader_is_data_wait_in_a_loop_of_steps_too():
    data = pytest.importorskip("torch.utils.data")
    clock, handler = FakeClock(), MemoryTraceHandler()
    fetch_before = data.dataloader._BaseDataLoaderIter.__next__
    with Profiler(ALWAYS, handler, clock=clock) as profiler:
        for _ in range(2):
            for _ in data.DataLoader(SlowRows(clock, 3), batch_size=1):
                clock.advance(300)
                profiler.step()
        timestamp = profiler.state.timestamp
    assert data.dataloader._BaseDataLoaderIter.__next__ is fetch_before
    assert timestamp.batch == 6
    assert [end - begin for _, begin, end in handler.spans("event/dataloader")] == [1000] * 6
    assert [end - begin for _, begin, end in handler.spans("event/batch")] == [300] * 6


def test_micro_batches_are_fetched_within_their_batch():
    data = pytest.importorskip("torch.utils.data")
    clock, handler = FakeClock(), MemoryTraceHandler()
    with Profiler(ALWAYS, handler, clock=clock) as profiler:
        for number, _ in enumerate(data.DataLoader(SlowRows(clock, 6), batch_size=1)):
            clock.advance(300)
            if number % 3 == 2:
                profiler.step()
    assert [end - begin for _, begin, end in handler.spans("event/dataloader")] == [1000] * 6
    assert [end - begin for _, begin, end in handler.spans("event/batch")] == [2900] * 2


def test_evaluation_after_a_step_is_between_batches_with_a_dataloader():
    data = pytest.importorskip("torch.utils.data")
    clock, handler = FakeClock(), MemoryTraceHandler()
    with Profiler(ALWAYS, handler, clock=clock) as profiler:
        for _ in data.DataLoader(SlowRows(clock, 2), batch_size=1):
            clock.advance(300)
            profiler.step()
            with profiler.eval(), profiler.marker("validate"):
                for _ in data.DataLoader(SlowRows(clock, 5), batch_size=1):
                    pass
    assert handler.spans("validate") == []
    assert [end - begin for _, begin, end in handler.spans("event/eval")] == [5000, 5000]
    assert [end - begin for _, begin, end in handler.spans("event/batch")] == [300, 300]


def test_a_dataloader_in_a_loop_over_batches_is_waited_for_once():
    data = pytest.importorskip("torch.utils.data")
    clock, handler = FakeClock(), MemoryTraceHandler()
    with Profiler(ALWAYS, handler, clock=clock) as profiler:
        for _ in profiler.batches(data.DataLoader(SlowRows(clock, 2), batch_size=1)):
            clock.advance(300)
    assert [end - begin for _, begin, end in handler.spans("event/dataloader")] == [1000, 1000]


# -- spans that outlast windows ----------------------------------------------------------------------------------


def test_an_epoch_and_an_evaluation_that_outlast_a_window_are_in_its_trace_clipped(tmp_path):
    clock = FakeClock()
    handler = JSONTraceHandler(str(tmp_path / "traces"), merged_trace_filename=None)
    with Profiler(cyclic_schedule(skip_first=2, warmup=0, active=1, repeat=2), handler, clock=clock) as profiler:
        began_ns = clock.unix_ns()
        for _ in profiler.batches(range(6)):
            clock.advance(1000)
    for path, window in zip(sorted((tmp_path / "traces").glob("ep*.json")), (2, 3), strict=True):
        trace = json.loads(path.read_text())
        (epoch,) = [event for event in trace["traceEvents"] if event["name"] == "event/epoch"]
        (batch,) = [event for event in trace["traceEvents"] if event["name"] == "event/batch"]
        assert epoch["dur"] == 1.0, "the file is as long as its window"
        assert epoch["ts"] == batch["ts"]
        assert epoch["tid"] == batch["tid"]
        assert epoch["args"]["begin_ns"] == began_ns
        assert "cut" in epoch["args"]
        assert "end_ns" not in epoch["args"], "it continues"
        assert trace["baseTimeNanoseconds"] + round(epoch["ts"] * 1000) == began_ns + window * 1000
        with load(path) as perfetto:
            assert perfetto.errors() == {}


def test_an_epoch_that_ends_within_a_window_says_when_it_began_and_ended():
    clock, handler = FakeClock(), MemoryTraceHandler()
    plan = lambda state: ProfilerAction.SKIP if state.timestamp.batch < 2 else ProfilerAction.ACTIVE  # noqa: E731
    with Profiler(plan, handler, clock=clock) as profiler:
        for _ in range(2):
            for _ in profiler.batches(range(3)):
                clock.advance(1000)
        with profiler.eval():
            clock.advance(50)
    (cycle,) = handler.cycles
    assert [(span.name.name, span.begin_ns, span.end_ns) for span in cycle.lasting] == [("event/epoch", 1, 3001)]
    assert handler.spans("event/epoch") == [("event/epoch", 3001, 6001)]
    assert handler.spans("event/eval") == [("event/eval", 6001, 6051)]


# -- profilers that were not closed ------------------------------------------------------------------------------


def test_never_closed_profiler_is_closed_and_saved_when_another_starts(caplog):
    first, second = MemoryTraceHandler(), MemoryTraceHandler()
    for handler in (first, second):  # a notebook's cell that is run again
        profiler = Profiler(ALWAYS, handler, run_name="notebook").start()
        assert active_profiler() is profiler
        run_batches(profiler, 2)
    profiler.close()
    assert active_profiler() is None
    assert batches_of(first) == batches_of(second) == [0, 1]
    assert "The Profiler of run 'notebook' was not closed. It is closed and saved now" in caplog.text


def test_a_thread_that_ends_between_start_and_finish_leaves_nothing_to_a_later_one():
    idents, errors = set(), []
    with Profiler(ALWAYS) as profiler:
        marker = profiler.marker("work")

        def work(finishes):
            try:
                marker.start()
                if finishes:
                    marker.finish()
            except Exception as error:
                errors.append(error)
            idents.add(threading.get_ident())

        for number in range(20):
            thread = threading.Thread(target=work, args=(number % 2 == 1,))
            thread.start()
            thread.join()
    assert len(idents) < 20, "the system has used no thread's ident again: nothing was tried"
    assert errors == []


def test_object_with_an_instance_method_gets_the_event_like_a_class_method():
    seen = []
    handler = SimpleNamespace(batch_end=lambda state, logger: seen.append(int(state.timestamp.batch)))
    with Profiler(cyclic_schedule(active=2), handler) as profiler:
        for _ in profiler.batches(range(2)):
            pass
    assert seen == [1, 2]
