"""The module in C as a whole: whatever Python does with its objects, the result is a value or an exception."""

import ctypes
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from support.arrow_streams import MalformedStream

_native = pytest.importorskip("kinetoscope._native", reason="the native module was not built")

SOURCES = Path(__file__).parents[2] / "src" / "native"
SPAN = b'{"ph":"X","name":"%d","cat":"a","pid":1,"tid":2,"ts":%d,"dur":1,"args":{}}'


def events(first: int, count: int) -> bytes:
    return b",".join(SPAN % (number, 10 * number) for number in range(first, first + count))


def rewriting(num_events: int) -> "_native.TraceText":
    """A text after the first pass, to be written unchanged."""
    text = _native.TraceText(True, 1000, b"", False, False)
    piece = events(0, num_events)
    assert text.survey(piece, 0, len(piece), True, 0)[0] == len(piece)
    text.finish_survey()
    text.plan([(b"1", b"2", True, -(2**63), 2**63 - 1, 1, 2, 0)], 0, 0, True, False, False, 0, (0, 0, 1))
    return text


def test_source_lines_of_a_trace_are_stable_while_it_grows_and_after_deletion():
    text, views = rewriting(1000), []
    for first in range(0, 1000, 100):
        piece = events(first, 100)
        position, _, lines = text.rewrite(piece, 0, len(piece), True, 0)
        assert position == len(piece)
        views.append((lines, bytes(lines)))
    del text, lines
    for first, (lines, at_first) in enumerate(views):
        assert bytes(lines) == at_first
        assert b'"name":"%d"' % (100 * first) in at_first


def test_the_memory_of_unused_lines_is_reused_for_the_next_ones():
    text, piece = rewriting(1000), events(0, 1000)
    addresses = set()
    for _ in range(5):
        lines = text.rewrite(piece, 0, len(piece), True, 0)[2]
        addresses.add(id(lines.obj))
        del lines
    assert len(addresses) == 1, "each piece is written to a buffer of its own"


def test_the_last_packets_of_a_trace_stay_valid_after_it_is_freed():
    text, piece = rewriting(10), events(0, 10)
    text.rewrite(piece, 0, len(piece), True, 0)
    lines = text.finish_rewrite()
    del text
    assert bytes(lines) == b""


def test_lines_of_kinetos_text_stay_valid_after_the_next_ones_and_after_their_object(tmp_path):
    (tmp_path / "end").write_bytes(b"]}")
    line = b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":7.125,"dur":1\n  },'
    found = _native.KinetoLines(-1000, [], (), line * 100)
    with open(tmp_path / "end", "rb", buffering=0) as end:
        stop, lines = found.read(end.fileno(), bytearray(b"\1"))
        at_first = bytes(lines)
        found.read(end.fileno(), bytearray(b"\1"))
    del found
    assert (stop, at_first.count(b"}")) == (2, 100)
    assert bytes(lines) == at_first


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("volatile", "a word that threads or processes share is atomic, with acquire and release"),
        ("PyMemoryView_FromMemory", "a view needs an owner (owned_bytes.h)"),
    ],
)
def test_no_c_source_has_a_forbidden_word(word, instead):
    found = [path.name for path in SOURCES.rglob("*.[ch]*") if word in path.read_text()]
    assert not found, f"{', '.join(found)}: {instead}"


def test_lines_of_c_have_at_most_100_columns():
    lines = [(path.name, line) for path in SOURCES.rglob("*.[ch]*") for line in path.read_text().splitlines()]
    assert [(name, line) for name, line in lines if len(line) > 100] == []


# -- no crash ----------------------------------------------------------------------------------------------------

MISUSE = Path(__file__).parents[1] / "support" / "programs" / "misuse_native_types.py"
MADE_BY_PYTHON = {"CallRecorder", "KinetoLines", "Recorder", "Sample", "Scanner", "Span", "StackSamples", "TraceText"}
DESCRIPTORS = [type(vars(_native.Span)[name]) for name in ("__enter__", "__exit__")]
TYPES = {kind.__name__: kind for kind in (*vars(_native).values(), *DESCRIPTORS) if isinstance(kind, type)}
del TYPES["TextChangedError"]  # an exception as any


def run_alone(*command: object) -> None:
    """Runs Python in a process of its own, so that a crash is a test failure that says where."""
    arguments = [sys.executable, "-X", "faulthandler", *map(str, command)]
    ended = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]


@pytest.mark.parametrize("name", [*TYPES, "FUNCTIONS"])
def test_any_call_of_any_object_returns_or_raises_however_the_object_was_made(name, tmp_path):
    run_alone(
        "-c",
        f"import os, runpy, sys; os.chdir({str(tmp_path)!r}); sys.argv[1:] = [{name!r}];"
        f"runpy.run_path({str(MISUSE)!r}, run_name='__main__')",
    )


@pytest.mark.parametrize("name", [name for name in TYPES if name not in MADE_BY_PYTHON])
def test_objects_that_only_c_makes_cannot_be_made_in_python(name):
    kind = TYPES[name]
    for make in (kind, lambda: kind.__new__(kind), lambda: object.__new__(kind)):
        with pytest.raises(TypeError):
            make()


class Recorder(_native.Recorder):
    def describe_thread(self):
        return 1, "main", True


def recording() -> tuple[Recorder, "_native.Span"]:
    recorder = Recorder(None)
    recorder.open_window()
    recorder.action = 1
    return recorder, _native.Span(recorder, 0, 1)


def test_restarted_recorder_of_a_process_continues_recording():
    recorder, span = recording()
    with span:
        pass
    recorder.forget()
    recorder.open_window()
    recorder.action = 1
    with span:
        pass
    [(*_, chunks)] = recorder.take_at_close()
    assert sum(map(len, chunks)) == 2  # the track mark, and the span


def test_span_is_not_recorded_after_a_restart_of_its_recorder():
    recorder, span = recording()
    leave = span.__exit__  # as `with` looks it up
    recorder.forget()
    span.__enter__()
    leave(None, None, None)
    assert recorder.take_at_close() == []


def test_thread_missing_when_the_trace_was_scanned_is_an_error_and_no_crash():
    text = _native.TraceText(False, 1000, b"", False, False)
    piece = events(0, 3)
    text.survey(piece, 0, len(piece), True, 0)
    text.finish_survey()
    text.plan([(b"1", b"2", True, -(2**63), 2**63 - 1, 1, 2, 0)], 0, 0, True, False, True, 0, (0, 0, 1))
    changed = b'{"ph":"X","name":"a","pid":1,"tid":9,"ts":3,"dur":4},{"ph":"M","name":"thread_name","pid":1,"tid":9}'
    with pytest.raises(_native.TextChangedError):
        text.rewrite(changed, 0, len(changed), True, 0)


def test_plan_is_read_completely_while_its_list_shrinks():
    class Yes:
        def __bool__(self):
            outputs.clear()
            return True

    text = rewriting(10)
    outputs = [(b"1", b"2", Yes(), -(2**63), 2**63 - 1, 1, 2, 0)] * 3
    text.plan(outputs, 0, 0, True, False, False, 0, (0, 0, 1))
    assert b'"tid":2' in bytes(text.rewrite(events(0, 1), 0, len(events(0, 1)), True, 0)[2])


def test_a_sample_refuses_a_second_thread_while_one_looks_through_records():
    sample, records = _native.Sample(1), instants(1_000_000)
    refused = []
    for _ in range(100):
        thread = threading.Thread(target=sample.add, args=(records,))
        thread.start()
        while thread.is_alive() and not refused:
            try:
                sample.firsts()
            except RuntimeError as error:
                refused.append(str(error))
        thread.join()
        if refused:
            break
    assert refused == ["A Sample is used by one thread at a time."]


def instants(count: int) -> bytes:
    """Records of instants, all alike."""
    return struct.pack("<qqIIHBBI", 5, 0, 0, 0, 0, 2, 0, 0) * count


def test_finishing_a_save_accepts_only_the_object_that_began_it():
    saving = pytest.importorskip("kinetoscope._kineto_save", reason="Kineto's save in C++ was not built")
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    for other in (None, 1, make(1, None, None), make(1, b"another", None)):
        with pytest.raises(ValueError):
            saving.finish(other)


def spans_table(num_rows: int = 3, **columns: Any) -> Any:
    types = {"ts": pl.Int64, "dur": pl.Int64, "track": pl.UInt32}
    values = {"ts": list(range(num_rows)), "dur": [1] * num_rows, "track": [0] * num_rows}
    return pl.DataFrame(values | columns, schema=types)


@pytest.mark.parametrize("name", ["ts", "dur", "track"])
def test_columns_with_nulls_are_refused(name):
    with pytest.raises(ValueError, match="nulls"):
        _native.nest_spans(spans_table(**{name: [None, 1, 2]}).__arrow_c_stream__())


@pytest.mark.parametrize(
    ("of_column", "numbers"),
    [
        (True, {"length": 2}),
        (True, {"length": -1}),
        (True, {"offset": -1}),
        (True, {"null_count": 1}),
        (True, {"n_buffers": 1}),
        (False, {"length": 1 << 40}),
        (False, {"length": -1}),
        (False, {"offset": 1}),
        (False, {"offset": (1 << 63) - 1}),
        (False, {"n_children": 2}),
    ],
)
def test_columns_shorter_than_their_batch_are_refused(of_column, numbers):
    altered = MalformedStream(spans_table(), numbers, of_column=of_column)
    with pytest.raises(ValueError, match="The stream has other columns"):
        _native.nest_spans(altered.capsule)


def test_an_extension_has_a_name_that_every_python_finds(monkeypatch):
    """CPython 3.15 adds the platform to the suffix of modules for the limited API, which 3.14 does not find."""
    from distutils.core import run_setup

    build_ext = pytest.importorskip("setuptools.command.build_ext")
    monkeypatch.setattr(build_ext, "get_abi3_suffix", lambda: ".abi3-x86_64-linux-gnu.so")
    monkeypatch.chdir(Path(__file__).parents[2])
    command = run_setup("setup.py", ["--quiet"], stop_after="init").get_command_obj("build_ext")
    command.ensure_finalized()
    assert command.get_ext_filename("kinetoscope._native").endswith("_native.abi3.so")
