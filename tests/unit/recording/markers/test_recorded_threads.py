"""Threads that begin, end and record while windows close."""

import gc
import os
import sys
import threading

import pytest

from kinetoscope.core.clock.clock import SystemClock
from kinetoscope.spool.record import Flag, Kind
from support.polling import wait_for
from support.recorders import FakeClockRecorder


@pytest.mark.parametrize("record", [lambda span: span.instant(), lambda span: span.counter(1)])
def test_records_of_a_new_thread_during_a_close_are_in_no_later_window(native, record):
    """Python code determines the thread, and another thread may run meanwhile."""
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
def test_a_finalizer_may_record_while_its_thread_records_for_the_first_time(native, num_allocations):
    native.open()
    finalized, first = native.span("finalized"), native.span("first")
    times = []

    def finalize(phase, info):
        if threading.get_ident() == thread.ident:  # not on the main thread, which may also collect before it waits
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
    threads = native.close()
    assert sum(thread.num_records for thread in threads) == len(times) + 1
    assert len(threads) == 1


def test_no_thread_is_checked_for_being_alive(native, monkeypatch):
    """Up to Python 3.12 a join of that thread may raise then."""

    def is_alive(thread):
        raise AssertionError("this thread is joined")

    native.open()
    monkeypatch.setattr(threading.Thread, "is_alive", is_alive)
    errors = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    for _ in range(3):
        thread = threading.Thread(target=native.span().instant)
        thread.start()
        thread.join()
    assert errors == []
    assert sum(thread.num_records for thread in native.close()) == 3


def test_a_thread_is_named_though_its_name_is_no_text(native):
    native.open()
    thread = threading.Thread(target=native.span().instant, name="worker \ud800")
    thread.start()
    thread.join()
    assert [thread.name for thread in native.close()] == ["worker \\ud800"]


def test_new_thread_continues_the_chunk_of_an_ended_one_with_its_own_records(native):
    spans = [native.span(f"span {number}") for number in range(200)]
    tids = []

    def record(span):
        tids.append(threading.get_native_id())
        with span:
            span.instant()

    native.open()
    for span in spans:
        thread = threading.Thread(target=record, args=(span,))
        thread.start()
        thread.join()
    names = native.recorder.names.names
    found = [(track.tid, [names[record.name].name for record in track.records()]) for track in native.close()]
    assert sorted(found) == sorted((tid, [f"span {number}"] * 2) for number, tid in enumerate(tids))


# -- threads that have ended ---------------------------------------------------------------------------------------


def test_threads_that_ended_are_forgotten_once_they_were_taken(native):
    span = native.span()
    for _ in range(3):
        native.open()
        threads = [threading.Thread(target=span.instant) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(native.close()) == 20


def test_a_thread_that_ends_inside_a_span_is_forgotten_once_that_was_cut(native, tmp_path):
    native.recorder.open_folder(str(tmp_path), 0, 1 << 20)
    span, tokens = native.span(), []
    native.open()
    ids = []
    for _ in range(20):
        thread = threading.Thread(target=lambda: tokens.append(span.begin()))
        thread.start()
        ids.append(thread.native_id)
        thread.join()
    wait_for(lambda: not any(os.path.exists(f"/proc/self/task/{number}") for number in ids))  # a join returns earlier
    records = native.records()
    assert [record.flags for record in records] == [Flag.CUT] * 20
    native.open()
    assert len(list(tmp_path.glob("*.track"))) == 1  # this thread's
    for token in tokens:
        span.end(token)
    assert native.records() == []
    native.recorder.close_folder()


def test_a_span_that_a_thread_leaves_open_when_it_ends_is_cut_at_the_windows_end(native):
    span = native.span()
    native.open()
    for work in (span.begin, span.instant, span.instant):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert sorted((record.kind, record.flags) for record in native.records()) == [
        (Kind.SPAN, Flag.CUT),
        (Kind.INSTANT, 0),
        (Kind.INSTANT, 0),
    ]


# -- while another thread runs -------------------------------------------------------------------------------------


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


def test_a_window_that_closes_while_threads_record_doubles_no_span(native):
    native = FakeClockRecorder(SystemClock())
    span = native.span()
    found = []

    def work():
        for _ in range(3000):
            with span:
                pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    native.open()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken = native.recorder.close_window()
        native.recorder.open_window()
        found += [(thread.tid, record) for thread in taken.threads() for record in thread.records()]
    found += [(thread.tid, record) for thread in native.close() for record in thread.records()]
    begins = {(tid, record.begin) for tid, record in found}
    assert len(begins) == len(found)
    assert len(found) <= 9000
