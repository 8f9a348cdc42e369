"""StackSampler: which lines the loop is at, as spans, and that nothing of it is left."""

import gc
import json
import os
import sys
import threading
import time
import weakref
import zlib
from itertools import pairwise

import pytest

from kinetoscope import ProfilerAction, StackSampler
from kinetoscope.core.paths.source_files import source_name
from kinetoscope.errors import SettingsError
from kinetoscope.recording.markers.native_recorder import NativeRecorder
from kinetoscope.recording.private_names import frames_of_threads
from kinetoscope.recording.profiler import Profiler
from kinetoscope.sources.stack_spans import StackSpans
from kinetoscope.testing import FakeClock, MemoryTraceHandler

HERE = source_name(__file__)


def line_of(function, offset):
    """Return a trace's name for a line of a function here: so many lines below its ``def``."""
    return f"{HERE}({function.__code__.co_firstlineno + offset}): {function.__name__}"


def slow_load():
    time.sleep(0.1)


def slower_load():
    time.sleep(1)  # on a busy machine the sampler's thread may not run for long


def quick_load():
    slow_load()


def always(state):
    return ProfilerAction.ACTIVE


def sampled(work, *, schedule=always, num_batches=3, source=None):
    """Return a sampler's records of ``work``, batch by batch."""
    handler = MemoryTraceHandler()
    sources = [source or StackSampler(interval_ms=1)]
    with Profiler(schedule, handler, sources=sources, strict=True) as profiler:
        for _ in profiler.batches(range(num_batches)):
            work()
    return handler


def test_the_line_that_takes_the_time_is_the_innermost_sample_below_its_callers():
    spans = sampled(quick_load).spans()
    slow = [(begin, end) for name, begin, end in spans if name == line_of(slow_load, 1)]
    callers = [(begin, end) for name, begin, end in spans if name == line_of(quick_load, 1)]
    assert sum(end - begin for begin, end in slow) > 150_000_000  # of 300 ms
    assert all(any(begin <= first and last <= end for begin, end in callers) for first, last in slow)


def test_samples_have_a_track_of_their_own_named_after_the_thread_of_the_loop():
    handler = sampled(slow_load)
    names = {
        thread.name
        for cycle in handler.cycles
        for thread, _, name in cycle.records()
        if name.categories == ("stack_sample",)
    }
    assert names == {f"samples of {threading.current_thread().name}"}


def test_each_window_says_how_often_it_is_sampled_and_whether_states_are_known():
    handler = sampled(lambda: [parse_then_check() for _ in range(20)])  # which never waits
    found_categories = {
        name.categories for cycle in handler.cycles for _, _, name in cycle.records() if name.name[:7] == "sampled"
    }
    has_states = sys.platform == "linux" and "KINETOSCOPE_PORTABLE" not in os.environ
    assert found_categories == {("stack_sample", "state") if has_states else ("stack_sample",)}


def test_frames_of_kinetoscope_are_not_among_the_samples():
    names = {name for name, _, _ in sampled(slow_load).spans() if ".py(" in name}
    assert names
    assert not any("kinetoscope/" in name for name in names)


def test_nothing_is_sampled_in_batches_that_are_skipped():
    def schedule(state):
        return ProfilerAction.SKIP if state.timestamp.batch < 2 else ProfilerAction.ACTIVE

    handler = sampled(slow_load, schedule=schedule, num_batches=3)
    begins = [begin for _, begin, _ in handler.spans(line_of(slow_load, 1))]
    assert begins
    assert min(begins) >= handler.cycles[0].begin.monotonic_ns


def test_each_window_has_its_own_samples():
    def schedule(state):
        return [ProfilerAction.ACTIVE_AND_SAVE, ProfilerAction.SKIP][state.timestamp.batch % 2]

    handler = sampled(slower_load, schedule=schedule, num_batches=4)
    for cycle in handler.cycles[:2]:
        times = [record.begin for _, record, name in cycle.records() if name.name == line_of(slower_load, 1)]
        assert times
        assert cycle.begin.monotonic_ns <= min(times) <= max(times) <= cycle.end.monotonic_ns


def test_no_thread_is_left_after_an_error_in_the_loop():
    def fail():
        slow_load()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sampled(fail)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("samples of")]


def test_a_sampler_that_waits_for_its_next_sample_ends_with_the_run():
    sampled(slow_load, source=StackSampler(interval_ms=1_000_000))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("samples of")]


def test_two_samplers_in_a_run_leave_nothing_behind():
    loader = pytest.importorskip("torch.utils.data").DataLoader
    before = loader.__iter__
    with Profiler(always, MemoryTraceHandler(), sources=[StackSampler(), StackSampler(interval_ms=5)], strict=True):
        pass
    assert loader.__iter__ is before


def test_a_sampler_can_be_used_in_a_second_run():
    source = StackSampler(interval_ms=1)
    sampled(slow_load, source=source)
    assert sampled(slow_load, source=source).spans(line_of(slow_load, 1))


def test_a_forked_child_has_no_sampler_and_leaves_the_parents_alone():
    def fork():
        slow_load()
        if (child := os.fork()) == 0:
            os._exit(len([thread for thread in threading.enumerate() if thread.name.startswith("samples")]))
        assert os.waitpid(child, 0)[1] == 0

    assert sampled(fork).spans(line_of(slow_load, 1))


def test_sampler_without_access_to_stacks_reports_it_and_training_continues(monkeypatch, caplog):
    def refuse():
        raise RuntimeError("no frames today")

    monkeypatch.setattr(sys, "_current_frames", refuse)
    monkeypatch.setattr(frames_of_threads, "find", lambda: refuse)  # it was looked up before
    sampled(slow_load)
    assert "The loop's stack is no longer sampled: RuntimeError: no frames today" in caplog.text


@pytest.mark.parametrize("interval_ms", [0, -1, 1e-9, float("nan"), float("inf"), 10**400, "10", True])
def test_an_interval_that_cannot_work_is_refused(interval_ms):
    with pytest.raises(SettingsError, match=r"interval_ms is a number of milliseconds, from 0\.01 to 86,400,000; not"):
        StackSampler(interval_ms=interval_ms)


# -- a thread that gives the GIL away for moments only


TEXT = b"x" * 6000
"""zlib gives the GIL away for texts of more than 5 KiB; this one takes it a few microseconds."""


NUMBERS = range(50_000)
"""Their parsing takes so long that the time between the release of the GIL and the stop of the thread is negligible."""


def parse_and_check():
    zlib.adler32(TEXT, len(",".join(map(str, NUMBERS))))
    for _ in range(30):
        zlib.adler32(TEXT)


def parse_then_check():
    ",".join(map(str, NUMBERS))
    for _ in range(30):
        zlib.adler32(TEXT)


def shares(function, *offsets):
    """Which part of the samples of a function is in each of its lines."""
    spans = sampled(lambda: [function() for _ in range(40)]).spans()
    lines = [line_of(function, offset) for offset in offsets]
    totals = [sum(end - begin for name, begin, end in spans if name == line) for line in lines]
    return [total / sum(totals) for total in totals]


def test_slow_line_is_found_although_a_later_one_releases_the_gil_more_often():
    first, *later = shares(parse_and_check, 1, 2, 3)
    assert first > 2 * sum(later)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="Python interrupts the thread only when it releases the GIL")
def test_a_line_that_never_gives_the_gil_away_is_found_too():
    first, *later = shares(parse_then_check, 1, 2, 3)
    assert first > 2 * sum(later)


def test_thread_asked_for_the_gil_keeps_nothing_of_the_sampler():
    for _ in range(20):
        recorder = NativeRecorder()
        recorder.open_window()
        recorder.action = 2
        spans = StackSpans(recorder, threading.get_ident(), 0.01)
        sampling = threading.Thread(target=spans.run)
        sampling.start()
        for _ in range(4):
            parse_and_check()
        spans.stop()
        sampling.join()
        recorder.close_window()
        left = weakref.ref(spans)
        del spans, sampling
        parse_and_check()  # the work of this thread is done by now
        gc.collect()
        assert left() is None


# -- sample by sample


class Watched:
    """A thread that waits at one of two lines, and the recorder that gets its samples."""

    def __init__(self):
        self.go_on, self.waiting = threading.Semaphore(0), threading.Semaphore(0)
        self.tensors = weakref.WeakSet()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.clock = FakeClock(monotonic_ns=1000)
        self.recorder = NativeRecorder(self.clock)
        self.recorder.open_window()
        self.recorder.action = 2
        self.thread.start()
        self.spans = StackSpans(self.recorder, self.thread.ident, 10.0)
        self.waiting.acquire()

    def work(self):
        self.forward()
        self.backward()

    def forward(self):
        activation = Tensor()
        self.tensors.add(activation)
        self.waiting.release(), self.go_on.acquire()

    def backward(self):
        self.waiting.release(), self.go_on.acquire()

    def step(self):
        self.go_on.release()
        self.waiting.acquire()

    def records(self):
        self.recorder.action = 0
        self.clock.advance(9000)
        threads = self.recorder.close_window().threads()
        self.go_on.release(2)
        self.thread.join()
        names = self.recorder.names.names
        found = [(names[record.name].name, record.begin, record.end) for one in threads for record in one.records()]
        return {(name, begin // 1000, end // 1000) for name, begin, end in found if name.startswith(HERE)}


class Tensor:
    pass


def test_equal_samples_are_one_span_and_a_sample_counts_until_the_next_one():
    watched = Watched()
    for asked_ns in (1000, 2000, 3000):
        watched.spans.sample(asked_ns)
    watched.step()
    watched.spans.sample(4000)
    watched.spans.end(5000)
    assert watched.records() == {
        (line_of(Watched.work, 1), 1, 4),
        (line_of(Watched.forward, 3), 1, 4),
        (line_of(Watched.work, 2), 4, 5),
        (line_of(Watched.backward, 1), 4, 5),
    }


def test_spans_that_are_open_when_the_window_closes_are_cut_there():
    watched = Watched()
    watched.spans.sample(0)
    assert watched.records() == {(line_of(Watched.work, 1), 1, 10), (line_of(Watched.forward, 3), 1, 10)}


def test_sampling_keeps_no_tensor_alive():
    watched = Watched()
    watched.spans.sample(10)
    assert len(watched.tensors) == 1
    watched.step()
    assert len(watched.tensors) == 0
    watched.records()


def test_samples_are_irregular_and_those_that_were_missed_are_left_out():
    spans = StackSpans(NativeRecorder(), 0, 1e-3)
    asked = [spans.next_time(0) for _ in range(100)]
    steps = {later - earlier for earlier, later in pairwise(asked)}
    assert len(steps) > 50
    assert 750 <= min(steps) <= max(steps) <= 1250
    assert 1_000_000 <= spans.next_time(1_000_000) <= 1_001_000


class OwnSamples:
    """Samples of the calling thread, taken in functions that are made for each."""

    def __init__(self):
        self.clock = FakeClock(monotonic_ns=1000)
        self.recorder = NativeRecorder(self.clock)
        self.recorder.open_window()
        self.recorder.action = 2
        self.spans = StackSpans(self.recorder, threading.get_ident(), 10.0, OwnSamples.begin.__code__)
        self.codes = []

    def begin(self, function, *arguments):
        """The outermost frame of each sample."""
        function(*arguments)

    def sample(self):
        self.clock.advance(1000)
        self.spans.sample(self.clock.monotonic_ns())

    def sample_in_new_code(self):
        code = compile("sample()", "made_by_training.py", "exec")
        self.codes.append(weakref.ref(code))
        exec(code, {"sample": self.sample})

    def sample_deep(self, depth):
        if depth == 0:
            self.sample()
        else:
            self.sample_deep(depth - 1)

    def names(self):
        """Return the names of the spans of the last sample, outermost first."""
        self.spans.end(self.clock.monotonic_ns() + 1000)
        self.recorder.action = 0
        self.clock.advance(9000)
        names = self.recorder.names.names
        records = [record for one in self.recorder.close_window().threads() for record in one.records()]
        return [names[record.name].name for record in sorted(records, key=lambda record: record.begin) if record.end]

    def num_codes_kept(self):
        gc.collect()
        return sum(code() is not None for code in self.codes)


def test_code_that_was_sampled_is_not_kept_when_its_window_is_over():
    samples = OwnSamples()
    for _ in range(10):
        samples.begin(samples.sample_in_new_code)
    samples.spans.end(9000)
    assert samples.num_codes_kept() == 0
    samples.names()


def test_code_that_was_sampled_is_not_kept_in_the_next_window_either():
    samples = OwnSamples()
    samples.begin(samples.sample_in_new_code)
    samples.recorder.close_window()
    samples.recorder.open_window()
    samples.begin(samples.sample)
    assert samples.num_codes_kept() == 0
    samples.names()


def test_window_with_endless_new_code_keeps_a_limited_amount():
    samples = OwnSamples()
    for _ in range(25_000):
        samples.begin(samples.sample_in_new_code)
    assert samples.num_codes_kept() < 10_100
    samples.names()


@pytest.mark.parametrize("depth", [97, 197])
def test_a_stack_that_is_not_deep_is_recorded_whole(depth):
    samples = OwnSamples()
    samples.begin(samples.sample_deep, depth)
    lines = [name.rpartition(" ")[2] for name in samples.names() if "sampled every" not in name]
    assert lines == ["begin", *["sample_deep"] * (depth + 1), "sample"]


@pytest.mark.parametrize("depth", [198, 300, 700])
def test_both_ends_of_a_deep_stack_are_recorded_with_a_note_on_omitted_frames(depth):
    samples = OwnSamples()
    samples.begin(samples.sample_deep, depth)
    names = [name for name in samples.names() if "sampled every" not in name]
    assert [name for name in names if name.startswith("frames left out")] == names[100:101]
    lines = [name.rpartition(" ")[2] for name in names[:100] + names[101:]]
    assert lines == ["begin", *["sample_deep"] * 198, "sample"]


@pytest.mark.parametrize("depth", [0, 300])
def test_a_sample_outside_of_what_a_worker_runs_has_no_frames(depth):
    samples = OwnSamples()
    samples.begin(samples.sample)
    samples.sample_deep(depth)  # a forked worker has the frames of its parent there
    lines = [name.rpartition(" ")[2] for name in samples.names() if "sampled every" not in name]
    assert lines == ["begin", "sample"]


def test_equal_samples_of_a_deep_stack_are_one_span():
    samples = OwnSamples()
    samples.sample_twice = lambda: [samples.sample() for _ in range(2)]
    samples.begin(lambda: deep(samples.sample_twice, 300))
    assert sum(name.startswith("frames left out") for name in samples.names()) == 1


def deep(function, depth):
    deep(function, depth - 1) if depth else function()


def test_endless_stack_keeps_its_inner_frames_with_a_note_on_omitted_ones():
    samples = OwnSamples()
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)
    try:
        samples.begin(samples.sample_deep, 12_000)
    finally:
        sys.setrecursionlimit(before)
    names = [name for name in samples.names() if "sampled every" not in name]
    assert names[0].startswith("frames left out")
    assert [name.rpartition(" ")[2] for name in names[1:]] == [*["sample_deep"] * 99, "sample"]


def dumps():
    json.dumps([{"row": number} for number in range(50_000)], indent=1)


def test_library_frames_are_distinguished_from_user_frames():
    """Hot lines are the innermost lines of user code, so a viewer must know which are."""
    names = {name for cycle in sampled(dumps).cycles for _, _, name in cycle.records()}
    categories = {name.name.split("(")[0]: name.categories for name in names}
    assert categories[HERE] == ("stack_sample",)
    assert {categories[file] for file in categories if file.startswith("json/")} == {("stack_sample", "library")}


def test_sampler_of_several_windows_continues_after_each():
    recorder = NativeRecorder()

    class Stopping(StackSpans):
        num_windows = 0

        def begin_window(self, has_states):
            self.num_windows += 1
            recorder.action = 0
            if self.num_windows == 2:
                self.stop()

    def another_window():
        assert recorder.action == 0
        recorder.close_window()
        open_window()
        return spans.num_windows > 2

    def open_window():
        recorder.open_window()
        recorder.action = 2

    open_window()
    spans = Stopping(recorder, threading.get_ident(), 0.1)
    sampling = threading.Thread(target=spans.run_until, args=(another_window,))
    sampling.start()
    sampling.join()
    recorder.close_window()
    assert spans.num_windows == 2
