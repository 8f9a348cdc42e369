"""The Profiler in a plain loop: windows, events, errors of handlers and sources, and the end."""

import json
import logging
import os
import threading
import tracemalloc
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from kinetoscope import Callback, ProfilerAction, State, Timestamp, TraceHandler, cyclic_schedule
from kinetoscope.errors import ProfilerStateError, SettingsError
from kinetoscope.recording.profiler import Profiler
from kinetoscope.sources.stack_sampler import StackSampler
from kinetoscope.sources.system_profiler import SystemProfiler
from kinetoscope.testing import FakeClock, MemoryTraceHandler

ALWAYS = lambda state: ProfilerAction.ACTIVE  # noqa: E731
NEVER = lambda state: ProfilerAction.SKIP  # noqa: E731
SOURCE = Callback()


def run_batches(profiler, num_batches, epochs=1):
    for _ in range(epochs):
        for _ in profiler.batches(range(num_batches)):
            pass


# -- the disabled profiler ---------------------------------------------------------------------------------------


def test_run_with_all_batches_skipped_leaves_no_files():
    handler, threads_before = MemoryTraceHandler(), set(threading.enumerate())
    with Profiler(NEVER, handler) as profiler:
        marker = profiler.marker("m")
        for _ in profiler.batches(range(100)):
            with marker:
                pass
        assert [thread.name for thread in set(threading.enumerate()) - threads_before] == ["kinetoscope-watch"]
    assert set(threading.enumerate()) <= threads_before  # one of an earlier test may have ended
    assert handler.cycles == []


def test_run_with_all_batches_skipped_holds_no_memory():
    with Profiler(NEVER, MemoryTraceHandler(), clock=FakeClock()) as profiler:  # the hang watchdog is off then
        marker = profiler.marker("m")

        def train(num_batches):
            for _ in profiler.batches(range(num_batches)):
                with marker:
                    pass

        def grown_bytes():
            before = tracemalloc.get_traced_memory()[0]
            train(5000)
            return tracemalloc.get_traced_memory()[0] - before

        train(100)
        tracemalloc.start()
        try:
            # What batches hold grows in each round; other threads and a tool that traces the tests may allocate in one.
            grown = min(grown_bytes() for _ in range(3))
        finally:
            tracemalloc.stop()
    assert grown < 10_000


# -- construction ------------------------------------------------------------------------------------------------


def test_both_orders_of_arguments_build_the_same_profiler():
    state, handler = State(run_name="mine"), MemoryTraceHandler()
    for build in (
        lambda: Profiler(state, ALWAYS, handler),
        lambda: Profiler(ALWAYS, [handler], state=state),
        lambda: Profiler(schedule=ALWAYS, trace_handlers=(handler,), state=state),
    ):
        profiler = build()
        assert profiler.state is state
        assert state.profiler is profiler
        assert profiler.trace_handlers == [handler]


def test_an_argument_that_is_no_schedule_is_refused_by_name():
    with pytest.raises(SettingsError, match="schedule"):
        Profiler(None, MemoryTraceHandler())


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        ((cyclic_schedule,), {}, r"schedule.* call it, as in cyclic_schedule\(active=4\)"),
        ((ProfilerAction,), {}, "schedule must be a function"),
        ((ALWAYS, MemoryTraceHandler), {}, r"trace_handlers.* Pass an instance: MemoryTraceHandler\(\)"),
        ((ALWAYS, [MemoryTraceHandler]), {}, "trace_handlers contains the class"),
        ((ALWAYS, "traces"), {}, "trace_handlers contains 'traces'"),
        ((ALWAYS, ["traces"]), {}, "trace_handlers contains 'traces'"),
        ((ALWAYS, (MemoryTraceHandler() for _ in range(2))), {}, "trace_handlers is a generator. Pass a list"),
        ((ALWAYS, object()), {}, "trace_handlers contains .* no method of Callback"),
        ((ALWAYS, Path("traces")), {}, "trace_handlers contains .*Path"),
        ((ALWAYS, None), {}, "trace_handlers contains None"),
        ((ALWAYS, [], 7), {}, "not also 7"),
        ((ALWAYS,), {"sources": [Callback]}, "sources contains the class Callback"),
        ((ALWAYS,), {"sources": "cpu"}, "sources contains 'cpu'"),
        ((ALWAYS,), {"sources": [SOURCE, SOURCE]}, "sources contains the same Callback twice. Pass it once"),
        ((ALWAYS,), {"state": 3}, "state must have .* no run_name and no timestamp"),
        ((ALWAYS,), {"run_name": 3}, "run_name must be a string, not 3"),
        ((ALWAYS,), {"run_name": ""}, "run_name must be a string, not ''"),
        ((ALWAYS,), {"run_name": "a", "state": State(run_name="b")}, "run_name='a' has no effect .* is 'b'"),
        ((ALWAYS,), {"schedule": ALWAYS}, "schedule is given twice"),
        ((ALWAYS, SOURCE), {"trace_handlers": [SOURCE]}, "trace_handlers is given twice"),
        ((State(run_name="a"), ALWAYS), {"state": State(run_name="b")}, "state is given twice"),
        ((ALWAYS,), {"strict": "yes"}, "strict must be True or False, not 'yes'"),
        ((ALWAYS,), {"quiet": 2}, "quiet must be True or False, not 2"),
        ((ALWAYS,), {"upload_to": 3}, "upload_to must be a URL, not 3"),
        ((ALWAYS,), {"grace_s": "x"}, "grace_s is a number of seconds.* not 'x'"),
        ((ALWAYS,), {"close_timeout_s": float("nan")}, "close_timeout_s is a number of seconds"),
        ((ALWAYS,), {"live_bytes_max": -1}, "live_bytes_max is a number of bytes, at least 0; not -1"),
        ((ALWAYS,), {"spool_folder": 3}, "spool_folder must be a folder, or False"),
    ],
)
def test_an_argument_that_cannot_work_is_refused_at_once_by_name(arguments, settings, words):
    with pytest.raises(SettingsError, match=words):
        Profiler(*arguments, **settings)


def test_upload_destination_is_a_url():
    with pytest.raises(SettingsError, match="upload_to='bucket/runs' is not a URL"):
        Profiler(ALWAYS, MemoryTraceHandler(), upload_to="bucket/runs")


def test_mock_is_a_trace_handler_although_it_has_a_paths_methods():
    handler = MagicMock()
    with Profiler(ALWAYS, [handler]) as profiler:
        run_batches(profiler, 1)
    (cycle,) = handler.process_cycle.call_args.args
    assert cycle.timestamp.batch == 1


def test_trace_handlers_can_be_set():
    profiler = Profiler(ALWAYS)
    first, second = MemoryTraceHandler(), MemoryTraceHandler()
    profiler.trace_handlers = first
    assert profiler.trace_handlers == [first]
    profiler.trace_handlers = [first, second]
    with profiler:
        run_batches(profiler, 1)
    assert len(second.cycles) == 1


# -- windows -----------------------------------------------------------------------------------------------------


def test_each_cycle_of_each_epoch_is_handed_over_with_the_completed_batches():
    handler = MemoryTraceHandler()
    with Profiler(cyclic_schedule(skip_first=1, warmup=1, active=2), handler) as profiler:
        run_batches(profiler, 10, epochs=2)
    assert [(int(cycle.timestamp.epoch), int(cycle.timestamp.batch)) for cycle in handler.cycles] == [(0, 4), (1, 14)]
    assert [cycle.number for cycle in handler.cycles] == [0, 1]
    assert [int(cycle.begin_timestamp.batch) for cycle in handler.cycles] == [1, 11]


def test_only_the_batches_of_the_schedule_are_recorded_and_each_record_has_its_batch():
    handler = MemoryTraceHandler()
    with Profiler(cyclic_schedule(wait=2, warmup=1, active=2), handler) as profiler:
        run_batches(profiler, 20)
    (cycle,) = handler.cycles
    batches = [record.batch for _, record, name in cycle.records() if name.name == "event/batch"]
    assert batches == [2, 3, 4]


def test_start_and_end_balance_for_every_span_in_a_window():
    handler = MemoryTraceHandler()
    with Profiler(cyclic_schedule(warmup=1, active=3, repeat=0), handler) as profiler:
        marker = profiler.marker("m")
        for _ in profiler.batches(range(9)):
            with marker:
                pass
    assert len(handler.spans("m")) == 9
    assert all(end >= begin for _, begin, end in handler.spans())


def test_a_run_that_ends_in_mid_window_keeps_that_window():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        run_batches(profiler, 3)
    assert len(handler.cycles) == 1
    assert len(handler.spans("event/batch")) == 3


@pytest.mark.parametrize("error", [ValueError("bad loss"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_in_the_loop_is_raised_and_the_window_so_far_is_kept(error):
    handler = MemoryTraceHandler()
    with pytest.raises(type(error)) as caught:
        with Profiler(ALWAYS, handler) as profiler:
            for batch in profiler.batches(range(5)):
                with profiler.marker("step"):
                    if batch == 2:
                        raise error
    assert caught.value is error
    assert len(handler.spans("step")) == 3
    assert len(handler.spans("event/batch")) == 3


def test_epoch_of_unknown_length_that_ends_while_active_is_saved():
    handler = MemoryTraceHandler()
    with Profiler(cyclic_schedule(skip_first=1, warmup=1, active=4), handler) as profiler:
        for _ in range(2):
            for _ in profiler.batches(iter(range(4))):
                pass
    assert [int(cycle.timestamp.batch) for cycle in handler.cycles] == [4, 8]


def test_pausing_schedule_keeps_its_window_open_and_records_nothing_meanwhile():
    plan = [ProfilerAction.ACTIVE, ProfilerAction.SKIP, ProfilerAction.ACTIVE_AND_SAVE, ProfilerAction.SKIP]
    handler = MemoryTraceHandler()
    with Profiler(lambda state: plan[min(state.timestamp.batch, 3)], handler) as profiler:
        run_batches(profiler, 4)
    (cycle,) = handler.cycles
    assert [record.batch for _, record, name in cycle.records() if name.name == "event/batch"] == [0, 2]


def test_the_records_of_a_window_are_between_its_anchors():
    handler = MemoryTraceHandler()
    with Profiler(cyclic_schedule(warmup=0, active=2, repeat=0), handler) as profiler:
        run_batches(profiler, 10)
    for cycle in handler.cycles:
        for _, record, _ in cycle.records():
            assert cycle.begin.monotonic_ns <= record.begin <= record.end <= cycle.end.monotonic_ns


# -- states ------------------------------------------------------------------------------------------------------


def test_second_concurrent_profiler_is_a_clear_error_and_the_first_continues():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        with pytest.raises(ProfilerStateError, match="Another Profiler is active"):
            Profiler(ALWAYS).start()
        run_batches(profiler, 2)
    assert len(handler.spans("event/batch")) == 2


def test_a_profiler_cannot_be_used_twice():
    profiler = Profiler(NEVER)
    with profiler:
        pass
    with pytest.raises(ProfilerStateError, match="started before"):
        profiler.start()


def test_closing_twice_is_harmless():
    handler = MemoryTraceHandler()
    profiler = Profiler(ALWAYS, handler).start()
    run_batches(profiler, 1)
    profiler.close()
    profiler.close()
    assert len(handler.cycles) == 1


def test_the_resumption_batch_remembers_its_epoch():
    profiler = Profiler(cyclic_schedule(skip_first=1, warmup=0, active=1))
    profiler.state.timestamp = Timestamp(epoch=1, batch=15, batch_in_epoch=5)
    profiler.resumption_batch_idx = 5
    assert profiler.schedule(profiler.state) is ProfilerAction.SKIP
    profiler.state.timestamp = profiler.state.timestamp.to_next_batch()
    assert profiler.schedule(profiler.state) is ProfilerAction.ACTIVE_AND_SAVE


# -- errors of others --------------------------------------------------------------------------------------------


class FailingAtCycle(TraceHandler):
    calls = 0

    def process_cycle(self, cycle):
        self.calls += 1
        raise RuntimeError("handler is broken")


class FailingAtBatch(Callback):
    calls = 0

    def batch_end(self, state, logger):
        self.calls += 1
        raise RuntimeError("source is broken")


class FailingAtInit(TraceHandler):
    def init(self, state, logger):
        raise RuntimeError("no such folder")


@pytest.mark.parametrize("broken", [FailingAtCycle(), FailingAtBatch()])
def test_failing_source_is_reported_once_and_disabled_and_training_continues(broken, caplog):
    good = MemoryTraceHandler()
    with caplog.at_level(logging.ERROR, "kinetoscope"):
        with Profiler(cyclic_schedule(warmup=0, active=1, repeat=0), [broken, good]) as profiler:
            run_batches(profiler, 5)
    assert broken.calls == 1
    assert len(good.cycles) == 5
    assert len([record for record in caplog.records if type(broken).__name__ in record.message]) == 1


def test_with_strict_an_error_on_the_writer_thread_is_raised_when_the_run_ends():
    with pytest.raises(RuntimeError, match="handler is broken"):
        with Profiler(ALWAYS, FailingAtCycle(), strict=True) as profiler:
            run_batches(profiler, 1)


def test_with_strict_an_error_in_the_loop_is_raised_there():
    with pytest.raises(RuntimeError, match="source is broken"):
        with Profiler(ALWAYS, sources=[FailingAtBatch()], strict=True) as profiler:
            run_batches(profiler, 1)


def test_an_error_during_setup_is_raised_and_nothing_stays_behind():
    with pytest.raises(RuntimeError, match="no such folder"):
        Profiler(ALWAYS, FailingAtInit()).start()
    with Profiler(NEVER):
        pass


@pytest.mark.parametrize("answer", ["record", None, 3])
def test_a_schedule_that_returns_no_action_skips_and_is_reported(answer, caplog):
    handler = MemoryTraceHandler()
    with Profiler(lambda state: answer, handler) as profiler:
        run_batches(profiler, 3)
    assert handler.cycles == []
    assert "ProfilerAction" in caplog.text


# -- contributed files -------------------------------------------------------------------------------------------


class FileReader(TraceHandler):
    def __init__(self):
        self.read, self.of_cycles = [], []

    def process_chrome_json_trace_file(self, filepath):
        self.read.append((threading.current_thread(), json.loads(filepath.read_text())))

    def process_cycle(self, cycle):
        self.of_cycles.append([json.loads(file.read_text()) for file in cycle.files])


def test_contributed_file_deleted_at_once_still_reaches_every_handler(tmp_path):
    handler = FileReader()
    with Profiler(ALWAYS, handler) as profiler:
        for batch in profiler.batches(range(2)):
            file = tmp_path / f"{batch}.json"
            file.write_text(json.dumps([batch]))
            profiler.record_chrome_json_trace_file(file)
            file.unlink()
    assert [content for _, content in handler.read] == [[0], [1]]
    assert all(thread is not threading.main_thread() for thread, _ in handler.read)
    assert handler.of_cycles == [[[0], [1]]]
    assert os.listdir(tmp_path) == []


def test_missing_contributed_file_is_reported_and_training_continues(tmp_path, caplog):
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler) as profiler:
        profiler.record_chrome_json_trace_file(tmp_path / "missing.json")
        run_batches(profiler, 1)
    assert len(handler.cycles) == 1
    assert "missing.json" in caplog.text


def test_training_continues_without_features_that_need_a_thread_if_none_can_start(monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    handler = MemoryTraceHandler()
    sources = [SystemProfiler(), StackSampler()]
    with Profiler(ALWAYS, handler, sources=sources, slow_steps=True) as profiler:
        batches = list(profiler.batches(range(3)))
    assert batches == [0, 1, 2]
    assert len(handler.cycles) == 1
    for lost in (
        "Hangs are not detected",
        "Slow steps are not kept",
        "stack is not sampled",
        "counters are not read",
    ):
        assert lost in caplog.text
    assert "ERROR" not in caplog.text
