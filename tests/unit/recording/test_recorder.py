"""The recorder, in C and in Python: both pass the same tests."""

import contextlib
import gc
import os
import signal
import sys
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.clock.clock import SystemClock
from kinetoscope.live.record import Flag, Kind
from kinetoscope.recording import pure_recorder
from kinetoscope.recording.pure_recorder import PureSpan
from kinetoscope.recording.recorder import INSTANT_ON_BEGIN, INSTANT_ON_END
from kinetoscope.testing import FakeClock
from pressing import Presses
from twins import TWINS

ON = 2


class Twin:
    """One of the two recorders, with a clock that ticks by one at each reading."""

    def __init__(self, recorder_type, span_type, clock=None):
        self.clock = clock or FakeClock(monotonic_ns=1, tick_ns=1)
        self.recorder = recorder_type(self.clock)
        self.span_type = span_type

    def span(self, name="span", mask=ON, edges=0):
        return self.span_type(self.recorder, self.recorder.names.intern(name), mask, edges)

    def open(self):
        self.recorder.open_window()
        self.recorder.action = ON

    def close(self):
        self.recorder.action = 0
        return self.recorder.close_window().threads()

    def records(self):
        return [record for thread in self.close() for record in thread.records()]

    def spans(self):
        """(name, begin, end) by begin, after closing the window."""
        names = self.recorder.names.names
        spans = [
            (names[record.name].name, record.begin, record.end) for record in self.records() if record.kind == Kind.SPAN
        ]
        return sorted(spans, key=lambda span: span[1])


def make(kind):
    if kind == "pure":
        return Twin(pure_recorder.PureRecorder, pure_recorder.PureSpan)
    pytest.importorskip("kinetoscope._native", reason="the native recorder was not built")
    from kinetoscope.recording import native_recorder

    return Twin(native_recorder.NativeRecorder, native_recorder.NativeSpan)


@pytest.fixture(params=TWINS)
def twin(request):
    return make(request.param)


@pytest.fixture
def native():
    return make("native")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_with_that_ctrl_c_keeps_from_beginning_leaves_no_span_open(is_recorded):
    """With the recorder in Python. Where the one in C begins a span, no signal is handled."""
    twin, num_begun = make("pure"), 0
    span, other = twin.span("broken off"), twin.span("other")
    with other:  # the thread's first span has more places
        pass
    twin.open()
    twin.recorder.action = ON * is_recorded
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for place in range(1, 10):
            Presses(signal.SIGINT, place, PureSpan.__enter__).start()
            with contextlib.suppress(KeyboardInterrupt):
                span.__enter__()
                num_begun += 1
            sys.settrace(None)
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    assert 0 < num_begun < 8
    assert len(twin.recorder.local.thread.open) == num_begun
    assert len(twin.spans()) == num_begun * is_recorded


# -- with --------------------------------------------------------------------------------------------------------


def test_nothing_is_recorded_before_a_window_opens_or_after_it_closes(twin):
    span = twin.span()
    with span:
        pass
    twin.open()
    twin.close()
    twin.recorder.action = ON
    with span:
        span.instant()
    assert twin.close() == []


def test_a_with_returns_the_span(twin):
    span = twin.span()
    with span as inactive:
        assert inactive is span
    twin.open()
    with span as active:
        assert active is span


def test_overlapping_withs_of_one_span_each_keep_their_own_begin(twin):
    span = twin.span()
    twin.open()

    def generate():
        with span:
            yield

    generators = [generate() for _ in range(3)]
    for generator in generators:
        next(generator)
    for position in (1, 0, 2):
        generators[position].close()
    assert [end - begin for _, begin, end in twin.spans()] == [4, 2, 3]


def test_a_thousand_generators_may_be_open_at_once(twin):
    span = twin.span()
    twin.open()

    def generate():
        with span:
            yield

    generators = [generate() for _ in range(1000)]
    for generator in generators:
        next(generator)
    for generator in generators:
        generator.close()
    spans = twin.spans()
    assert len(spans) == 1000
    assert {end - begin for _, begin, end in spans} == {1000}


def test_a_generator_left_open_and_collected_ends_its_span(twin):
    span = twin.span()
    twin.open()

    def generate():
        with span:
            yield

    generator = generate()
    next(generator)
    del generator
    gc.collect()
    (record,) = twin.records()
    assert not record.flags & Flag.CUT


def test_a_finalizer_may_begin_a_span_while_one_is_begun(twin):
    span, tokens = twin.span(), []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            tokens.append(span.begin())

    twin.open()
    before = gc.get_threshold()
    for _ in range(100):
        Cycle()
        gc.set_threshold(1)
        tokens.append(span.begin())
        gc.set_threshold(*before)
    gc.collect()
    for token in tokens:
        span.end(token)
    assert len(tokens) == 200
    assert len({begin for _, begin, _ in twin.spans()}) == 200


@pytest.mark.parametrize("num_allocations", range(1, 8))
def test_no_record_is_lost_if_the_writer_thread_gets_its_turn_while_a_window_closes(native, num_allocations):
    """Up to Python 3.11 a garbage collection, and so any Python code, may run at each allocation of C code."""
    recorder = native.recorder
    native.open()
    record = native.span().instant
    threads = [threading.Thread(target=record) for _ in range(3)]
    [(thread.start(), thread.join()) for thread in threads]
    record()
    recorder.action = 0
    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(lambda phase, info: recorder.prepare())
    try:
        gc.set_threshold(num_allocations)
        closed = recorder.close_window()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.pop()
    assert sum(thread.num_records for thread in closed.threads()) == 4


@pytest.mark.parametrize("record", [lambda span: span.instant(), lambda span: span.counter(1)])
def test_what_a_new_thread_records_while_the_window_closes_is_in_no_later_one(native, record):
    """Python code asks who the thread is, and meanwhile another thread may have its turn."""
    recorder, closed = native.recorder, []
    describe = recorder.describe_thread

    def describe_slowly():
        closed.append(recorder.close_window())
        return describe()

    native.open()
    recorder.describe_thread = describe_slowly
    thread = threading.Thread(target=record, args=(native.span(),))
    thread.start()
    thread.join()
    recorder.open_window()
    assert native.close() == []
    assert closed[0].threads() == []


@pytest.mark.parametrize("num_allocations", range(1, 12))
def test_a_finalizer_may_record_while_its_thread_records_for_the_first_time(twin, num_allocations):
    twin.open()
    finalized, first = twin.span("finalized"), twin.span("first")
    times = []

    def finalize(phase, info):
        finalized.instant()
        times.append(phase)

    def work():
        before = gc.get_threshold()
        gc.callbacks.append(finalize)
        try:
            gc.set_threshold(num_allocations)
            first.instant()
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(finalize)

    gc.collect()
    lists = [[] for _ in range(200)]  # so that none is there to be used again
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    del lists
    threads = twin.close()
    assert sum(thread.num_records for thread in threads) == len(times) + 1
    assert len(threads) == 1


def test_no_thread_is_asked_whether_it_is_alive(twin, monkeypatch):
    """Up to Python 3.12 a join of that thread may raise then."""

    def ask(thread):
        raise AssertionError("somebody joins this thread")

    twin.open()
    monkeypatch.setattr(threading.Thread, "is_alive", ask)
    errors = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    for _ in range(3):
        thread = threading.Thread(target=twin.span().instant)
        thread.start()
        thread.join()
    assert errors == []
    assert sum(thread.num_records for thread in twin.close()) == 3


def test_ctrl_c_while_space_is_asked_for_reaches_training_and_no_record_is_lost(native):
    """What handles a signal runs in the Python code that is called, and may raise."""

    def request():
        raise KeyboardInterrupt

    native.recorder.request = request
    native.open()
    span, num_interrupted = native.span(), 0
    for record in (span.instant, lambda: span.counter(1), lambda: span.end(span.begin())) * 20_000:
        try:
            record()
        except KeyboardInterrupt:
            num_interrupted += 1
            native.recorder.prepare()
    native.recorder.request = None
    assert num_interrupted > 1
    assert sum(thread.num_records for thread in native.close()) == 60_000


def test_an_error_of_who_is_asked_for_space_does_not_reach_training(native, monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda error: told.append(error.exc_type))
    native.recorder.request = lambda: 1 / 0
    native.open()
    native.span().instant()
    native.recorder.request = None
    assert told == [ZeroDivisionError]


def test_a_thread_is_named_though_its_name_is_no_text(native):
    native.open()
    thread = threading.Thread(target=native.span().instant, name="worker \ud800")
    thread.start()
    thread.join()
    assert [thread.name for thread in native.close()] == ["worker \\ud800"]


@pytest.fixture
def threads_alternate():
    """Another thread may have its turn after each instruction."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_alternate")
def test_records_can_be_read_while_another_thread_frees_unused_space(native, tmp_path):
    _native = pytest.importorskip("kinetoscope._native")
    native.recorder.open_folder(str(tmp_path), 0, 64 << 20)
    errors = []

    def read(chunk, is_sealed):
        while not is_sealed.is_set():
            try:
                memoryview(chunk).release()
            except OSError as error:
                errors.append(error)

    for _ in range(100):
        native.open()
        native.span().instant()
        ((*_, chunks),) = native.recorder.take_at_close()
        is_sealed = threading.Event()
        thread = threading.Thread(target=read, args=(chunks[0], is_sealed))
        thread.start()
        _native.seal_chunks(chunks)
        is_sealed.set()
        thread.join()
        memoryview(chunks[0]).release()
    native.recorder.close_folder()
    assert errors == []


def test_a_span_begun_inactive_does_not_end_one_begun_active(twin):
    span = twin.span()
    twin.recorder.open_window()
    with span:
        twin.recorder.action = ON
        with span:
            pass
    assert len(twin.spans()) == 1


def test_a_span_that_ends_inactive_is_recorded_all_the_same(twin):
    span = twin.span()
    twin.open()
    with span:
        twin.recorder.action = 0
    assert len(twin.spans()) == 1


def test_a_span_ends_in_the_window_it_began_in_or_not_at_all(twin):
    span = twin.span()
    twin.open()
    with span:
        (cut,) = twin.records()
        twin.open()
    assert cut.flags & Flag.CUT
    assert twin.spans() == []


def test_depth_counts_the_spans_open_at_the_begin(twin):
    outer, inner = twin.span("outer"), twin.span("inner")
    twin.open()
    for _ in range(2):
        with outer, inner, inner:
            inner.instant()
    depths = [(record.kind, record.depth) for record in twin.records()]
    assert depths == [(Kind.INSTANT, 3), (Kind.SPAN, 2), (Kind.SPAN, 1), (Kind.SPAN, 0)] * 2


# -- the rarer ways to begin and end
# ------------------------------------------------------------------------------------------


def test_looking_up_exit_without_calling_it_changes_nothing(twin):
    span, other = twin.span(), twin.span("other")
    twin.open()
    for _ in range(3):
        assert hasattr(span, "__exit__")
        assert callable(span.__enter__)
    kept = [span.__exit__ for _ in range(5)]
    with other, span:
        pass
    del kept
    with span:
        pass
    assert [name for name, _, _ in twin.spans()] == ["other", "span", "span"]


def test_an_exit_method_that_was_kept_does_not_end_a_later_span(twin):
    span, other = twin.span(), twin.span("other")
    twin.open()
    with span:
        pass
    kept = span.__exit__
    with other:
        kept(None, None, None)
    assert [(name, end - begin) for name, begin, end in twin.spans()] == [("span", 1), ("other", 2)]


def test_enter_and_exit_may_be_called_by_hand(twin):
    span = twin.span()
    twin.open()
    span.__enter__()
    span.__enter__()
    span.__exit__(None, None, None)
    span.__exit__(None, None, None)
    assert len(twin.spans()) == 2
    assert twin.recorder.window == 0


def test_enter_and_exit_may_be_kept_and_called_many_times(twin):
    span = twin.span()
    twin.open()
    enter, leave = span.__enter__, span.__exit__
    for _ in range(3):
        enter()
        leave(None, None, None)
    records = twin.records()
    assert len(records) == 3
    assert not any(record.flags & Flag.CUT for record in records)


def test_exit_without_enter_does_nothing(twin):
    span = twin.span()
    twin.open()
    span.__exit__(None, None, None)
    assert twin.records() == []


def test_an_exit_stack_ends_the_spans_that_it_began(twin):
    outer, inner = twin.span("outer"), twin.span("inner")
    twin.open()
    with contextlib.ExitStack() as stack:
        stack.enter_context(outer)
        stack.enter_context(inner)
        stack.enter_context(outer)
        with inner:
            pass
    records = twin.records()
    assert len(records) == 4
    assert not any(record.flags & Flag.CUT for record in records)


def test_a_stack_entered_inactive_does_not_end_another_span(twin):
    span = twin.span()
    twin.recorder.open_window()
    with contextlib.ExitStack() as outer:
        twin.recorder.action = ON
        outer.enter_context(span)
        with contextlib.ExitStack() as inner:
            twin.recorder.action = 0
            inner.enter_context(span)
            twin.recorder.action = ON
        span.instant()
    spans = twin.spans()
    assert len(spans) == 1
    assert spans[0][2] - spans[0][1] > 1


def test_a_subclass_may_wrap_enter_and_exit(twin):
    class Wrapped(twin.span_type):
        def __enter__(self):
            return super().__enter__()

        def __exit__(self, *exception):
            super().__exit__(*exception)

    span = Wrapped(twin.recorder, twin.recorder.names.intern("wrapped"), ON)
    twin.open()
    with span, span:
        pass
    records = twin.records()
    assert len(records) == 2
    assert not any(record.flags & Flag.CUT for record in records)


# -- tokens ------------------------------------------------------------------------------------------------------


def test_tokens_end_in_any_order_and_only_once(twin):
    span = twin.span()
    twin.open()
    first, second = span.begin(), span.begin()
    span.end(first)
    with span:
        span.end(first)
    span.end(second)
    span.end(second)
    span.end(None)
    assert len(twin.spans()) == 3


def test_a_token_that_is_kept_after_its_end_ends_no_other_span(twin):
    span = twin.span()
    twin.open()
    kept = [span.begin() for _ in range(3)]
    for token in kept:
        span.end(token)
    later = [span.begin() for _ in range(3)]
    for token in kept:
        span.end(token)
    assert len(twin.spans()) == 6
    del later


def test_an_abandoned_span_is_not_recorded(twin):
    span = twin.span()
    twin.open()
    token = span.begin()
    span.abandon(token)
    span.end(token)
    span.abandon(None)
    assert twin.records() == []


def test_a_token_ends_on_another_thread_and_stays_on_its_own_track(twin):
    span = twin.span()
    twin.open()
    token = span.begin()
    thread = threading.Thread(target=span.end, args=(token,))
    thread.start()
    thread.join()
    (track,) = twin.close()
    assert track.is_main


# -- instants and counters ---------------------------------------------------------------------------------------


def test_a_counter_has_a_record_for_each_value(twin):
    span = twin.span("loss")
    twin.open()
    span.counter({"a": 1, "b": 0.5})
    span.counter(7)
    span.counter(0.25)
    names = twin.recorder.names.names
    records = twin.records()
    assert [(names[record.series].name, record.end) for record in records] == [
        ("a", 1),
        ("b", 0.5),
        ("loss", 7),
        ("loss", 0.25),
    ]
    assert records[0].begin == records[1].begin


@given(st.lists(st.one_of(st.integers(), st.floats(allow_nan=False)), min_size=1, max_size=5))
def test_both_recorders_write_the_same_record_for_a_number(values):
    packed = []
    for kind in ("pure", "native"):
        twin = make(kind)
        twin.open()
        span = twin.span("n")
        for value in values:
            span.counter(value)
            span.counter({"v": value})
        packed.append([record._replace(begin=0) for record in twin.records()])
    assert packed[0] == packed[1]


def test_a_counter_of_many_values_keeps_them_all(twin):
    span = twin.span()
    twin.open()
    span.counter({f"v{n}": n for n in range(500)})
    assert [record.end for record in twin.records()] == list(range(500))


def test_each_record_has_its_batch_number(twin):
    span = twin.span()
    twin.open()
    for batch in (3, 2**32 - 1):
        twin.recorder.batch = batch
        span.instant()
    assert [record.batch for record in twin.records()] == [3, 2**32 - 1]


# -- listeners ---------------------------------------------------------------------------------------------------


class Log:
    def __init__(self, fails=""):
        self.fails = fails
        self.calls = []

    def _call(self, *call):
        self.calls.append(call)
        if call[0] == self.fails:
            raise ValueError(self.fails)

    def on_begin(self, name, begin_ns, entry):
        self._call("begin", name, begin_ns)

    def on_end(self, name, end_ns, entry):
        self._call("end", name, end_ns)

    def on_instant(self, name, now_ns):
        self._call("instant", name, now_ns)

    def on_counter(self, name, now_ns, values):
        self._call("counter", name, now_ns, dict(values))


def test_a_listener_gets_all_events_in_order(twin):
    twin.recorder.listener = log = Log()
    span = twin.span(edges=INSTANT_ON_BEGIN | INSTANT_ON_END)
    twin.open()
    with span:
        span.counter({"v": 1})
        span.counter(2)
    assert [call[0] for call in log.calls] == ["begin", "instant", "counter", "counter", "instant", "end"]
    assert log.calls[3][3] == {"span": 2}


def test_an_error_of_a_listener_is_raised_and_the_recorder_still_works(twin):
    twin.recorder.listener = Log(fails="end")
    span = twin.span()
    twin.open()
    for _ in range(3):
        with pytest.raises(ValueError, match="end"):
            with span:
                pass
    twin.recorder.listener = None
    assert len(twin.spans()) == 3


# -- recorders and memory ----------------------------------------------------------------------------------------


def test_a_span_attached_elsewhere_records_there(twin):
    span = twin.span()
    elsewhere = Twin(type(twin.recorder), twin.span_type)
    span.attach(elsewhere.recorder, elsewhere.recorder.names.intern("there"))
    twin.open()
    elsewhere.open()
    with span:
        pass
    assert twin.spans() == []
    assert [name for name, _, _ in elsewhere.spans()] == ["there"]


def test_a_recorder_and_its_spans_are_collected_when_nothing_refers_to_them(twin):
    span = twin.span()
    twin.open()
    with span:
        pass
    span.begin()
    hasattr(span, "__exit__")
    gone = weakref.ref(twin.recorder)
    del span
    twin.recorder = None
    gc.collect()
    assert gone() is None


def test_a_token_may_outlive_its_recorder(twin):
    span = twin.span()
    twin.open()
    token = span.begin()
    elsewhere = Twin(type(twin.recorder), twin.span_type)
    span.attach(elsewhere.recorder, 0)
    twin.recorder = None
    gc.collect()
    span.end(token)
    elsewhere.open()
    with span:
        pass
    assert len(elsewhere.records()) == 1


def test_threads_that_ended_are_forgotten_once_they_were_taken(twin):
    span = twin.span()
    for _ in range(3):
        twin.open()
        threads = [threading.Thread(target=span.instant) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(twin.close()) == 20


def test_a_thread_that_ends_inside_a_span_is_forgotten_once_that_was_cut(native, tmp_path):
    native.recorder.open_folder(str(tmp_path), 0, 1 << 20)
    span, tokens = native.span(), []
    native.open()
    for _ in range(20):
        thread = threading.Thread(target=lambda: tokens.append(span.begin()))
        thread.start()
        thread.join()
    records = native.records()
    assert [record.flags for record in records] == [Flag.CUT] * 20
    native.open()
    assert len(list(tmp_path.glob("*.track"))) == 1  # this thread's
    for token in tokens:
        span.end(token)
    assert native.records() == []
    native.recorder.close_folder()


@pytest.mark.parametrize("num_bytes", range(8, 24))
def test_a_folder_with_too_long_a_path_for_chunks_is_refused_and_everything_stays_in_memory(
    native, tmp_path, num_bytes
):
    """``num_bytes``: how many bytes are left for the name of a file."""
    longest = os.pathconf(tmp_path, "PC_PATH_MAX") - len("/") - num_bytes - len("\0")
    folder = (str(tmp_path) + ("/" + "d" * 200) * 40)[:longest]
    os.makedirs(folder)
    with pytest.raises(OSError, match="File name too long"):
        native.recorder.open_folder(folder, 0, 1 << 20)
    span = native.span()
    native.open()
    with span:
        assert os.listdir(folder) == []
    assert len(native.records()) == 1


def test_a_span_that_a_thread_leaves_open_when_it_ends_is_cut_at_the_windows_end(twin):
    span = twin.span()
    twin.open()
    for work in (span.begin, span.instant, span.instant):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert sorted((record.kind, record.flags) for record in twin.records()) == [
        (Kind.SPAN, Flag.CUT),
        (Kind.INSTANT, 0),
        (Kind.INSTANT, 0),
    ]


def test_a_thread_goes_on_where_one_that_has_ended_stopped_and_has_its_own_records(twin):
    spans = [twin.span(f"span {number}") for number in range(200)]
    tids = []

    def record(span):
        tids.append(threading.get_native_id())
        with span:
            span.instant()

    twin.open()
    for span in spans:
        thread = threading.Thread(target=record, args=(span,))
        thread.start()
        thread.join()
    names = twin.recorder.names.names
    found = [(track.tid, [names[record.name].name for record in track.records()]) for track in twin.close()]
    assert sorted(found) == sorted((tid, [f"span {number}"] * 2) for number, tid in enumerate(tids))


def test_a_window_that_closes_while_threads_record_doubles_no_span(twin):
    twin = Twin(type(twin.recorder), twin.span_type, SystemClock())
    span = twin.span()
    found = []

    def work():
        for _ in range(3000):
            with span:
                pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    twin.open()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken = twin.recorder.close_window()
        twin.recorder.open_window()
        found += [(thread.tid, record) for thread in taken.threads() for record in thread.records()]
    found += [(thread.tid, record) for thread in twin.close() for record in thread.records()]
    begins = {(tid, record.begin) for tid, record in found}
    assert len(begins) == len(found)
    assert len(found) <= 9000


def test_spans_that_are_open_while_windows_close_are_cut_once_each(native):
    twin = Twin(type(native.recorder), native.span_type, SystemClock())
    span = twin.span()
    twin.open()
    with span:
        first = twin.records()
        twin.open()
        with span:
            second = twin.records()
    assert [record.flags for record in first + second] == [Flag.CUT, Flag.CUT]


def test_more_records_than_one_chunk_holds_are_all_kept(twin):
    span = twin.span()
    twin.open()
    for _ in range(30_000):
        with span:
            pass
    spans = twin.spans()
    assert len(spans) == 30_000
    assert {end - begin for _, begin, end in spans} == {1}


# -- what only the one in C can get wrong ------------------------------------------------------------------------


def test_a_native_span_accepts_only_a_recorder_and_only_its_tokens(native):
    with pytest.raises(TypeError, match="recorder"):
        native.span_type(3, 0, 0)
    with pytest.raises(TypeError, match="begin"):
        native.span().end("token")
    with pytest.raises(TypeError, match="span"):
        type(native.span()).__mro__[1].__dict__["__exit__"].__get__(3, int)


def test_a_clock_that_raises_leaves_the_recorder_sound(native):
    span = native.span()
    native.open()
    good = native.recorder
    broken = type(good)(type("Clock", (), {"monotonic_ns": staticmethod(lambda: 1 // 0)})())
    broken.open_window()
    broken.action = ON
    bad = native.span_type(broken, broken.names.intern("x"), ON)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            with bad:
                pass
        with pytest.raises(ZeroDivisionError):
            bad.instant()
    with span:
        pass
    assert len(native.spans()) == 1


def test_a_counter_takes_its_values_from_anything_that_plain_values_understands(native):
    class Odd(native.span_type):
        def plain_values(self, values):
            return {"odd": len(values)}

    native.open()
    span = Odd(native.recorder, native.recorder.names.intern("odd"), ON)
    span.counter("four")
    assert [record.end for record in native.records()] == [4]
