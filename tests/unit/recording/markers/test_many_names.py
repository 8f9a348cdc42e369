"""Many new names, as in ``kinetoscope.marker(f"step {number}")``: few are kept, and the records are right."""

import contextlib
import gc
import signal
import tracemalloc

import pytest

import kinetoscope
from kinetoscope import ProfilerAction
from kinetoscope.core.text.once_log import OnceLog
from kinetoscope.recording.markers import recorder_types
from kinetoscope.recording.markers.marker import MAX_CACHED_MARKERS
from kinetoscope.recording.markers.process import this_process
from kinetoscope.recording.markers.recorder_types import NameTable
from kinetoscope.recording.profiler import Profiler
from kinetoscope.spool.chunk import NamesFile, read_names
from kinetoscope.testing import MemoryTraceHandler
from support.signal_injection import InjectedSignals

MANY = 3 * MAX_CACHED_MARKERS


@pytest.fixture(autouse=True)
def no_warning_yet(monkeypatch):
    monkeypatch.setattr(this_process, "once", OnceLog())


def use_many(marker=kinetoscope.marker):
    for number in range(MANY):
        with marker(f"other {number}"):
            pass


def record_all(state):
    return ProfilerAction.ACTIVE


def skip_but_for_the_last(state):
    return ProfilerAction.ACTIVE if state.timestamp.batch >= MANY - 2 else ProfilerAction.SKIP


def bytes_of_many(marker):
    """Return the memory that many new names take while the user has switched the garbage collector off."""
    use_many(marker)
    gc.disable()
    tracemalloc.start()
    try:
        use_many(marker)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(MANY):
            marker(f"one more {number}").instant()
            with marker(f"and one more {number}"):
                pass
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()


def test_many_new_names_of_a_library_do_not_fill_memory():
    assert bytes_of_many(kinetoscope.marker) < 1 << 20


def test_many_new_names_do_not_fill_memory_in_skipped_batches():
    with Profiler(lambda state: ProfilerAction.SKIP, MemoryTraceHandler(), strict=True) as profiler:
        assert bytes_of_many(profiler.marker) < 1 << 20


def test_names_that_vary_by_step_are_recorded_unmodified_without_being_cached(tmp_path):
    handler = MemoryTraceHandler()
    with Profiler(skip_but_for_the_last, handler, strict=True, spool_folder=tmp_path) as profiler:
        for number in profiler.batches(range(MANY)):
            with kinetoscope.marker(f"step {number}"), profiler.marker(f"inner {number}"):
                kinetoscope.marker("loss").counter(number)
        written = sum(len(path.read_text().splitlines()) for path in tmp_path.rglob("*.names"))
        assert written < 50
    steps = [name for name, *_ in handler.spans() if name.startswith(("step", "inner"))]
    assert sorted(steps) == sorted(f"{name} {number}" for name in ("inner", "step") for number in (MANY - 2, MANY - 1))


def test_a_warning_says_once_what_to_do_instead(caplog):
    use_many()
    use_many()
    assert len(caplog.messages) == 1
    assert "counter" in caplog.messages[0]
    assert "'other " in caplog.messages[0]


def test_a_marker_that_is_referenced_is_kept_and_still_records():
    handler = MemoryTraceHandler()
    held = kinetoscope.marker("held")
    with_categories = kinetoscope.marker("held", categories=("x",))
    use_many()
    with Profiler(record_all, handler, strict=True) as profiler:
        own = profiler.marker("own", categories=("y",))
        use_many(profiler.marker)
        use_many()
        assert kinetoscope.marker("held") is held
        assert kinetoscope.marker("held", categories=("x",)) is with_categories
        assert profiler.marker("own") is own
        for _ in profiler.batches(range(1)):
            with held, own:
                pass
    assert {"held", "own"} <= {name for name, *_ in handler.spans()}


def test_a_marker_that_is_started_or_open_is_the_same_after_many_others():
    handler = MemoryTraceHandler()
    with Profiler(record_all, handler, strict=True) as profiler:
        for _ in profiler.batches(range(1)):
            kinetoscope.marker("started").start()
            with kinetoscope.marker("open"), profiler.marker("own"):
                use_many()
                use_many(profiler.marker)
            kinetoscope.marker("started").finish()
    assert {"started", "open", "own"} <= {name for name, *_ in handler.spans()}
    assert handler.cut_spans() == []


def test_names_beyond_the_limit_that_differ_only_in_digits_share_one(monkeypatch, caplog):
    monkeypatch.setattr(recorder_types, "MAX_NAMES", 20)
    monkeypatch.setattr(recorder_types, "_MAX_SHARED_NAMES", 3)
    handler = MemoryTraceHandler()
    with Profiler(record_all, handler, strict=True) as profiler:
        for _ in profiler.batches(range(1)):
            for number in range(50):
                kinetoscope.marker(f"step {number}").instant()
            for letter in "abcdef":
                kinetoscope.marker(f"letter {letter}").instant()
    names = [name for name, *_ in handler.instants()]
    assert len(names) == 56
    assert names[:10] == [f"step {number}" for number in range(10)]
    assert names[40:50] == ["step #"] * 10
    assert len(set(names[50:])) < 4
    assert len([message for message in caplog.messages if "digits" in message]) == 1


def interned_at_each_place(tmp_path, on_signal):
    """Interns three names for each place at which a signal may come in it, and gives the names' table and file."""
    for place in range(1, 1_000):
        folder = tmp_path / str(place)
        folder.mkdir()
        table = NameTable()
        file = NamesFile(folder, 1, table.names)
        table.subscribe(file.write_new_names)
        presses = InjectedSignals(signal.SIGINT, place, NameTable.intern)
        before = signal.signal(signal.SIGINT, lambda *came, table=table: on_signal(table))
        try:
            presses.start()
            with contextlib.suppress(KeyboardInterrupt):
                table.intern("one")
        finally:
            presses.stop()
            signal.signal(signal.SIGINT, before)
        assert [table.names[table.intern(name)].name for name in ("two", "one", "three")] == ["two", "one", "three"]
        file.close()
        yield table, file
        if presses.num_places < place:
            break


def interrupt(table):
    raise KeyboardInterrupt


def intern_others(table):
    assert table.names[table.intern("of a signal")].name == "of a signal"


@pytest.mark.parametrize("on_signal", [interrupt, intern_others])
def test_names_keep_their_numbers_wherever_a_signal_comes(on_signal, tmp_path):
    num_places = 0
    for table, file in interned_at_each_place(tmp_path, on_signal):
        names, damages = read_names(file.path.read_bytes())
        assert ([name.name for name in names], damages) == ([name.name for name in table.names], [])
        num_places += 1
    assert num_places > 10


def test_a_name_that_comes_while_its_file_is_made_is_in_it(tmp_path):
    table = NameTable()
    file = NamesFile(tmp_path, 1, table.names)
    table.intern("of another thread")
    table.subscribe(file.write_new_names)
    file.close()
    assert [name.name for name in read_names(file.path.read_bytes())[0]] == ["of another thread"]
