"""GCPauses: what is recorded of Python's garbage collector, and what is left behind."""

import contextlib
import gc
import os
import re
import shutil
import signal
import sys
import threading
import weakref
from functools import partial
from types import SimpleNamespace

import pytest

from kinetoscope import GCPauses, ProfilerAction
from kinetoscope.core.paths.source_files import source_name
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import MemoryTraceHandler
from support.failing_clock import FailingClock

BATCHES = [ProfilerAction.SKIP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE]


class Cycle:
    """An object that only the garbage collector can free."""

    def __init__(self):
        self.self = self


@pytest.fixture(autouse=True)
def automatic_collections_off():
    gc.disable()
    yield
    gc.enable()


def record(work, source=None):
    """Return the pauses while ``work`` was called in each of three batches; the last two are recorded."""
    handler = MemoryTraceHandler()
    with Profiler(
        lambda state: BATCHES[state.timestamp.batch % 3], handler, sources=[source or GCPauses()], strict=True
    ) as profiler:
        for number in profiler.batches(range(3)):
            work(number)
    return handler.events("gc")


def test_each_collection_is_a_span_with_its_generation_and_what_it_found():
    gc.collect()

    def work(number):
        Cycle()
        gc.collect(1)

    pauses = record(work)
    assert [pause.name for pause in pauses] == ["gc generation 1"] * 2
    for pause in pauses:
        assert pause.args["generation"] == 1
        assert pause.args["collected"] >= 1
        assert pause.args["uncollectable"] == 0
        assert pause.tid == threading.get_native_id()
        assert pause.end_ns >= pause.begin_ns


def test_a_collection_says_which_of_the_users_lines_was_running():
    def work(number):
        gc.collect()

    line = work.__code__.co_firstlineno + 1
    assert {pause.args["line"] for pause in record(work)} == {f"{source_name(__file__)}:{line}"}


def test_in_a_library_the_line_is_the_users_that_called_it():
    def work(number):
        stack = contextlib.ExitStack()
        stack.callback(gc.collect)
        stack.close()

    line = work.__code__.co_firstlineno + 3
    assert {pause.args["line"] for pause in record(work)} == {f"{source_name(__file__)}:{line}"}


def test_a_collection_of_what_torchs_compiler_makes_is_named_so(tmp_path):
    file = tmp_path / "site-packages/torch/_dynamo/convert_frame.py"
    names = {"collect": gc.collect}
    exec(compile("def convert():\n    collect()\n\ndef call(user):\n    user()\n", str(file), "exec"), names)
    assert {pause.name for pause in record(lambda number: names["convert"]())} == {"gc generation 2, of the compiler"}
    mine = record(lambda number: names["call"](lambda: gc.collect()))
    assert {pause.name for pause in mine} == {"gc generation 2"}, "the user's code is inside of the compiler's"


def test_innermost_function_of_a_library_is_recorded_without_its_callees_elsewhere():
    copy = partial(shutil.copyfileobj, SimpleNamespace(read=gc.collect), SimpleNamespace(write=[].append), 2)

    def copies(number):
        copy()

    def calls_what_copies(number):
        stack = contextlib.ExitStack()
        stack.callback(copy)
        stack.close()

    for work, function in (
        (copies, "shutil.py(N): copyfileobj"),
        (calls_what_copies, "contextlib.py(N): _exit_wrapper"),
    ):
        assert {re.sub(r"\d+", "N", pause.args["library"]) for pause in record(work)} == {function}


def test_explicit_gc_collection_of_user_code_is_in_no_library():
    assert all("library" not in pause.args for pause in record(lambda number: gc.collect()))


def test_a_collection_on_another_thread_is_on_that_threads_track():
    seen = []

    def collect():
        seen.append(threading.get_native_id())
        gc.collect()

    def work(number):
        thread = threading.Thread(target=collect)
        thread.start()
        thread.join()

    pauses = record(work)
    assert [pause.tid for pause in pauses] == seen[1:]


def test_python_has_the_same_callbacks_before_and_after_a_run():
    before = list(gc.callbacks)
    inside = []
    record(lambda number: inside.append(len(gc.callbacks)))
    assert inside == [len(before), len(before) + 1, len(before) + 1]
    assert gc.callbacks == before


def test_other_callbacks_that_come_and_go_during_the_run_are_left_alone():
    def mine(phase, info):
        pass

    def work(number):
        if number == 1:
            gc.callbacks.insert(0, mine)
        gc.collect()

    try:
        assert len(record(work)) == 2
        assert gc.callbacks[0] is mine
    finally:
        gc.callbacks.remove(mine)


def test_a_list_of_callbacks_that_somebody_has_cleared_is_no_error():
    before = list(gc.callbacks)
    try:
        assert record(lambda number: gc.callbacks.clear()) == []
    finally:
        gc.callbacks[:] = before


def test_nothing_is_left_after_a_loop_error_and_the_source_is_reusable():
    before, source = list(gc.callbacks), GCPauses()

    def fail(number):
        if number == 1:
            raise ValueError("of the user's")

    with pytest.raises(ValueError, match="of the user's"):
        record(fail, source)
    assert gc.callbacks == before
    assert len(record(lambda number: gc.collect(), source)) == 2
    assert gc.callbacks == before


def test_ctrl_c_during_a_collection_reaches_training():
    """Python drops what a callback of the collector raises, and with it a Ctrl-C that comes in that moment."""
    before = list(gc.callbacks)

    class Interrupting(dict):
        def __iter__(self):
            signal.raise_signal(signal.SIGINT)
            return super().__iter__()

        keys = __iter__

    def work(number):
        if number == 1:
            watch = gc.callbacks[-1]
            gc.disable()  # a real collection between the two would end the pause that this one starts
            watch("start", {})
            watch("stop", Interrupting(generation=0))
            threading.Event().wait(60)

    try:
        with pytest.raises(KeyboardInterrupt):
            record(work)
    finally:
        gc.enable()
    assert gc.callbacks == before


def test_a_forked_child_has_no_hook_of_its_parents_run():
    before = len(gc.callbacks)
    status = []

    def work(number):
        if number == 1:
            child = os.fork()
            if child == 0:
                os._exit(len(gc.callbacks) - before)
            status.append(os.waitpid(child, 0)[1])

    record(work)
    assert status == [0]


def test_no_object_lives_longer_for_a_pause():
    freed = []

    def work(number):
        value = Cycle()
        freed.append(weakref.ref(value))
        gc.collect()
        del value
        gc.collect()
        assert freed[-1]() is None

    record(work)
    assert len(freed) == 3


def test_during_an_evaluation_between_batches_nothing_is_recorded():
    handler = MemoryTraceHandler()
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[GCPauses()], strict=True) as profiler:
        for _ in profiler.batches(range(2)):
            gc.collect()
        with profiler.eval():
            gc.collect()
    assert len(handler.events("gc")) == 2


def collect_with_a_broken_clock(*, strict):
    handler, clock = MemoryTraceHandler(), FailingClock()
    with Profiler(
        lambda state: ProfilerAction.ACTIVE, handler, sources=[GCPauses()], clock=clock, strict=strict
    ) as profiler:
        for _ in profiler.batches(range(3)):
            clock.is_broken = True
            gc.collect()
            clock.is_broken = False
    return handler


def test_internal_error_in_a_gc_callback_is_logged_once_and_hidden_from_python(caplog, monkeypatch):
    heard, before = [], list(gc.callbacks)
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    assert collect_with_a_broken_clock(strict=False).events("gc") == []
    assert heard == []
    assert len([text for text in caplog.messages if "GCPauses failed and is switched off" in text]) == 1
    assert gc.callbacks == before


def test_a_strict_run_raises_such_an_error_at_its_end():
    with pytest.raises(OSError, match="the clock is broken"):
        collect_with_a_broken_clock(strict=True)
