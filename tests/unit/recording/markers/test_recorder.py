"""The recorder: its windows, its listeners, and its references."""

import gc
import os
import weakref

import pytest

from kinetoscope.core.clock.clock import SystemClock
from kinetoscope.recording.markers.native_recorder import NativeSpan
from kinetoscope.recording.markers.recorder_types import INSTANT_ON_BEGIN, INSTANT_ON_END
from kinetoscope.spool.record import Flag
from support.recorders import ON, FakeClockRecorder


def test_nothing_is_recorded_before_a_window_opens_or_after_it_closes(native):
    span = native.span()
    with span:
        pass
    native.open()
    native.close()
    native.recorder.action = ON
    with span:
        span.instant()
    assert native.close() == []


def test_each_record_has_its_batch_number(native):
    span = native.span()
    native.open()
    for batch in (3, 2**32 - 1):
        native.recorder.batch = batch
        span.instant()
    assert [record.batch for record in native.records()] == [3, 2**32 - 1]


def test_more_records_than_one_chunk_holds_are_all_kept(native):
    span = native.span()
    native.open()
    for _ in range(30_000):
        with span:
            pass
    spans = native.spans()
    assert len(spans) == 30_000
    assert {end - begin for _, begin, end in spans} == {1}


def test_spans_that_are_open_while_windows_close_are_cut_once_each(native):
    native = FakeClockRecorder(SystemClock())
    span = native.span()
    native.open()
    with span:
        first = native.records()
        native.open()
        with span:
            second = native.records()
    assert [record.flags for record in first + second] == [Flag.CUT, Flag.CUT]


def test_a_clock_that_raises_leaves_the_recorder_sound(native):
    span = native.span()
    native.open()
    good = native.recorder
    broken = type(good)(type("Clock", (), {"monotonic_ns": staticmethod(lambda: 1 // 0)})())
    broken.open_window()
    broken.action = ON
    bad = NativeSpan(broken, broken.names.intern("x"), ON)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            with bad:
                pass
        with pytest.raises(ZeroDivisionError):
            bad.instant()
    with span:
        pass
    assert len(native.spans()) == 1


# -- space ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_space_is_asked_for_reaches_training_and_no_record_is_lost(native):
    """A signal handler runs in the Python code that is called, and may raise."""

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
    errors = []
    monkeypatch.setattr("sys.unraisablehook", lambda error: errors.append(error.exc_type))
    native.recorder.request = lambda: 1 / 0
    native.open()
    native.span().instant()
    native.recorder.request = None
    assert errors == [ZeroDivisionError]


@pytest.mark.parametrize("num_bytes", range(8, 24))
def test_folder_with_too_long_a_path_is_refused_and_records_stay_in_memory(native, tmp_path, num_bytes):
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


# -- listeners -----------------------------------------------------------------------------------------------------


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


def test_a_listener_gets_all_events_in_order(native):
    native.recorder.listener = log = Log()
    span = native.span(edges=INSTANT_ON_BEGIN | INSTANT_ON_END)
    native.open()
    with span:
        span.counter({"v": 1})
        span.counter(2)
    assert [call[0] for call in log.calls] == ["begin", "instant", "counter", "counter", "instant", "end"]
    assert log.calls[3][3] == {"span": 2}


def test_an_error_of_a_listener_is_raised_and_the_recorder_still_works(native):
    native.recorder.listener = Log(fails="end")
    span = native.span()
    native.open()
    for _ in range(3):
        with pytest.raises(ValueError, match="end"):
            with span:
                pass
    native.recorder.listener = None
    assert len(native.spans()) == 3


# -- what refers to what -------------------------------------------------------------------------------------------


def test_a_span_attached_elsewhere_records_there(native):
    span = native.span()
    elsewhere = FakeClockRecorder()
    span.attach(elsewhere.recorder, elsewhere.recorder.names.intern("there"))
    native.open()
    elsewhere.open()
    with span:
        pass
    assert native.spans() == []
    assert [name for name, _, _ in elsewhere.spans()] == ["there"]


def test_a_recorder_and_its_spans_are_collected_when_nothing_refers_to_them(native):
    span = native.span()
    native.open()
    with span:
        pass
    span.begin()
    hasattr(span, "__exit__")
    gone = weakref.ref(native.recorder)
    del span
    native.recorder = None
    gc.collect()
    assert gone() is None


def test_a_token_may_outlive_its_recorder(native):
    span = native.span()
    native.open()
    token = span.begin()
    elsewhere = FakeClockRecorder()
    span.attach(elsewhere.recorder, 0)
    native.recorder = None
    gc.collect()
    span.end(token)
    elsewhere.open()
    with span:
        pass
    assert len(elsewhere.records()) == 1
