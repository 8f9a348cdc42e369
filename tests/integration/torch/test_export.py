"""Exported traces: valid for json.loads and for Perfetto, with every string as it was, any number of times."""

import contextlib
import gzip
import json
import multiprocessing
import os
import sys
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetoscope.errors import FolderNotWritableError
from kinetoscope.formats.chrome import read_chrome
from kinetoscope.formats.compression import read_unpacked
from kinetoscope.torch import (
    kineto_stream,
    original_names,
    profile,
    record_function,
    results,
    schedule,
    tensorboard_trace_handler,
)
from kinetoscope.torch.export import copy_trace, rewrite_trace
from kinetoscope.torch.kineto_text import read_text
from kinetoscope.torch.original_names import find_original_names
from kinetoscope.torch.results import KinetoResults
from kinetoscope.torch.tensorboard_trace_handler import BackgroundExport
from support.chunked_kineto import ChunkedKineto
from support.torch_versions import VERSION, since_2_13
from support.trace_processor import trace_processor

ODD_NAMES = [
    'say "hi"',
    "back\\slash",
    "backslash at the end\\",
    "two at the end\\\\",
    'backslash and quote\\"',
    "tab\there",
    "two\nlines",
    "\x01control",
    "Grüße 😀",
    '"',
    'x", "ph": "i',
    '}, {"ph": "X"',
    '],"traceName"',
    "unknown",
    "",
]


def trace_only():
    """The options for events without args, if this torch has them."""
    with contextlib.suppress(TypeError):
        yield {"experimental_config": torch._C._profiler._ExperimentalConfig(trace_only=True)}


OPTIONS = [{}, *trace_only(), {"with_stack": True}, {"with_stack": True, "record_shapes": True, "profile_memory": True}]


def names_of(options):
    return " ".join(options) or "no options"


def record(names=ODD_NAMES, **options) -> profile:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    with profile(**options) as profiler:
        for name in names:
            with record_function(name):
                model(torch.ones(3, 8)).sum().backward()
    return profiler


def annotations(path: Path) -> list[str]:
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event.get("cat") == "user_annotation"]
    return [span["name"] for span in sorted(spans, key=lambda span: span["ts"])]


@pytest.mark.parametrize("options", OPTIONS, ids=names_of)
def test_every_name_comes_back_as_it_was(tmp_path, options):
    record(**options).export_chrome_trace(tmp_path / "trace.json")
    assert annotations(tmp_path / "trace.json") == ODD_NAMES


@pytest.mark.parametrize("options", OPTIONS, ids=names_of)
@pytest.mark.parametrize("names", [["plain"], ODD_NAMES], ids=["plain", "odd"])
def test_perfetto_finds_no_error_and_every_span(tmp_path, options, names):
    path = tmp_path / "trace.json"
    record(names, **options).export_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    with trace_processor.load(path) as trace:
        assert trace.errors() == {}
        [row] = trace.query("select count(*) as n from slice where dur > 0 or name != ''")
    assert row["n"] >= sum(event["ph"] == "X" for event in events if event["name"])


@pytest.fixture
def no_known_names():
    """Forget all known names, as in a new process."""
    original_names.altered_names.clear()
    original_names.unaltered_names.clear()


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "tab\there", "Grüße", "it's", "train/forward"])
def test_names_that_others_give_come_back_as_they_were(tmp_path, no_known_names, name):
    for number in range(2):
        with profile() as profiler:
            with torch.profiler.record_function(name):
                torch.ones(3)
        profiler.export_chrome_trace(tmp_path / f"{number}.json")
    assert [annotations(tmp_path / f"{number}.json") for number in range(2)] == [[name], [name]]


@pytest.mark.parametrize("options", OPTIONS, ids=names_of)
@pytest.mark.skipif(VERSION < (2, 9), reason="what older versions write is read in Python")
def test_ordinary_names_are_not_looked_up(tmp_path, no_known_names, monkeypatch, options):
    """Looking them up holds the GIL for microseconds per event."""
    looked_up = []
    monkeypatch.setattr(results, "find_original_names", looked_up.append)
    record(["plain", "train/forward", "it's [3]"], **options).export_chrome_trace(tmp_path / "trace.json")
    assert looked_up == []


@settings(max_examples=25, deadline=None)
@given(name=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12))
def test_any_name_at_all_comes_back(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("names") / "trace.json"
    record([name]).export_chrome_trace(path)
    assert annotations(path) == [name]


def test_spans_that_interleave_on_one_thread_all_stay_in_the_trace(tmp_path):
    first, second = record_function("first"), record_function("second")
    with profile() as profiler:
        first.__enter__()
        torch.ones(3)
        second.__enter__()
        torch.ones(3)
        first.__exit__(None, None, None)
        torch.randn(200, 200) @ torch.randn(200, 200)
        second.__exit__(None, None, None)
    profiler.export_chrome_trace(tmp_path / "trace.json")
    with trace_processor.load(tmp_path / "trace.json") as trace:
        assert trace.errors() == {}
        rows = trace.query("select name from slice where name in ('first', 'second')")
    assert len(rows) == 2


@pytest.mark.parametrize("value", ['say "hi"', "a\\b\t\n", "é", 3, [1, {"deep": None}]])
@pytest.mark.parametrize("key", ["plain", 'k"ey\n'])
def test_metadata_comes_back_as_it_was(tmp_path, key, value):
    with profile() as profiler:
        profiler.add_metadata(key, value)
    profiler.export_chrome_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())[key] == value


def test_metadata_may_be_added_by_the_handler_before_it_exports(tmp_path):
    def handler(profiler) -> None:
        profiler.add_metadata_json("loss", "[1.5]")
        profiler.export_chrome_trace(tmp_path / "trace.json")

    with profile(on_trace_ready=handler):
        torch.ones(3)
    assert json.loads((tmp_path / "trace.json").read_text())["loss"] == [1.5]


def test_preset_metadata_and_the_current_flags_are_in_the_header_of_each_window(tmp_path):
    def handler(profiler) -> None:
        profiler.export_chrome_trace(tmp_path / f"{profiler.step_num}.json")

    profiler = profile(
        schedule=schedule(wait=0, warmup=1, active=1), on_trace_ready=handler, record_shapes=True, with_flops=True
    )
    profiler.preset_metadata_json("run", '"digits"')
    with profiler:
        for _ in range(4):
            profiler.step()
    headers = [json.loads(path.read_text()) for path in sorted(tmp_path.iterdir())]
    assert [header["run"] for header in headers] == ["digits", "digits"]
    assert all(header["record_shapes"] == header["with_flops"] == 1 for header in headers)
    assert not any("with_stack" in header for header in headers)


def test_exporting_again_gives_the_same_trace_also_after_the_first_file_is_gone(tmp_path):
    profiler = record(["plain"])
    profiler.export_chrome_trace(tmp_path / "a" / "trace.json")
    first = json.loads((tmp_path / "a" / "trace.json").read_text())
    (tmp_path / "a" / "trace.json").write_text("overwritten")
    profiler.export_chrome_trace(tmp_path / "b" / "trace.json")
    assert json.loads((tmp_path / "b" / "trace.json").read_text()) == first
    assert os.listdir(tmp_path / "a") == os.listdir(tmp_path / "b") == ["trace.json"]


@pytest.mark.parametrize("names", [["plain"], ODD_NAMES], ids=["plain", "odd"])
def test_a_name_that_ends_in_gz_is_compressed(tmp_path, names):
    profiler = record(names)
    profiler.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    profiler.export_chrome_trace(tmp_path / "trace.json")
    packed = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert packed["traceEvents"] == json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_name_that_ends_in_zst_is_compressed(tmp_path):
    profiler = record(["plain"])
    profiler.export_chrome_trace(tmp_path / "trace.json.zst")
    profiler.export_chrome_trace(tmp_path / "trace.json")
    packed, damage = read_unpacked(tmp_path / "trace.json.zst")
    assert (json.loads(packed)["traceEvents"], damage) == (
        json.loads((tmp_path / "trace.json").read_text())["traceEvents"],
        "",
    )


def test_failed_export_names_the_path_leaves_nothing_and_can_be_retried(tmp_path):
    profiler = record(["plain"])
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(FolderNotWritableError, match="file"):
        profiler.export_chrome_trace(tmp_path / "file" / "trace.json")
    profiler.export_chrome_trace(tmp_path / "trace.json")
    assert annotations(tmp_path / "trace.json") == ["plain"]
    assert sorted(os.listdir(tmp_path)) == ["file", "trace.json"]


def test_header_has_no_absolute_path_of_the_user(tmp_path):
    record(["plain"]).export_chrome_trace(tmp_path / "trace.json")
    assert str(tmp_path) not in (tmp_path / "trace.json").read_text()


def test_tensorboards_handler_writes_a_file_per_window(tmp_path):
    handler = tensorboard_trace_handler(tmp_path / "new" / "logs", worker_name="me", use_gzip=True)
    with profile(schedule=schedule(wait=0, warmup=1, active=1), on_trace_ready=handler) as profiler:
        for _ in range(4):
            profiler.step()
    files = sorted((tmp_path / "new" / "logs").iterdir())
    assert len(files) == 2
    for path in files:
        assert path.name.startswith("me.")
        assert path.name.endswith(".pt.trace.json.gz")
        json.loads(gzip.decompress(path.read_bytes()))


def test_tensorboards_handler_names_the_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match="file"):
        with profile(on_trace_ready=tensorboard_trace_handler(tmp_path / "file" / "logs")):
            torch.ones(3)


def test_first_of_several_unwritable_traces_is_the_error_and_others_its_notes(tmp_path):
    with profile() as profiler:
        torch.ones(3)
    background, results = BackgroundExport(), profiler.pop_results()
    for name in ("first", "second", "third"):
        (tmp_path / name).write_text("")  # which no file can be in
        background.export(results, tmp_path / name / "trace.json")
    with pytest.raises(FolderNotWritableError, match="first") as raised:
        background.close()
    second, third = raised.value.__notes__
    assert "second" in second
    assert "third" in third


def test_tensorboard_handler_writes_in_the_background_and_finishes_with_the_block(tmp_path, monkeypatch):
    threads = []
    export = KinetoResults.export_chrome_trace

    def watched(results, path, **options) -> None:
        threads.append(threading.current_thread())
        export(results, path, **options)

    monkeypatch.setattr(KinetoResults, "export_chrome_trace", watched)
    handler = tensorboard_trace_handler(tmp_path)
    with profile(schedule=schedule(wait=0, warmup=1, active=1), on_trace_ready=handler) as profiler:
        for _ in range(4):
            profiler.step()
    assert threading.main_thread() not in threads
    assert len(list(tmp_path.iterdir())) == len(threads) == 2


def test_every_cycle_arrives_whole_while_another_thread_runs_python_all_the_time(tmp_path):
    done = threading.Event()

    def count(number: int) -> int:
        return number + 1

    def spin() -> None:
        number = 0
        while not done.is_set():
            number = count(number)

    spinning = threading.Thread(target=spin)
    spinning.start()
    handler = tensorboard_trace_handler(tmp_path, use_gzip=True)
    try:
        with profile(
            schedule=schedule(wait=0, warmup=1, active=2), with_stack=True, on_trace_ready=handler
        ) as profiler:
            for _ in range(12):
                torch.ones(3, requires_grad=True).sum().backward()
                profiler.step()
    finally:
        done.set()
        spinning.join()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 4
    for path in files:
        names = [event["name"] for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]
        assert sum(name.startswith("ProfilerStep#") for name in names) == 2
    with trace_processor.load(files[-1]) as trace:
        assert trace.errors() == {}


def test_tensorboards_handler_called_by_a_users_handler_writes_at_once(tmp_path):
    handler, found = tensorboard_trace_handler(tmp_path), []

    def on_trace_ready(profiler) -> None:
        handler(profiler)
        found.extend(tmp_path.iterdir())

    with profile(on_trace_ready=on_trace_ready):
        torch.ones(3)
    assert len(found) == 1


def test_acc_events_exports_the_cycles_of_all(tmp_path):
    def train() -> None:
        torch.ones(3, requires_grad=True).sum().backward()

    with profile(schedule=schedule(wait=0, warmup=1, active=2, repeat=3), acc_events=True) as profiler:
        for _ in range(10):
            train()
            profiler.step()
    profiler.export_chrome_trace(tmp_path / "trace.json")
    steps = sorted(name for name in annotations(tmp_path / "trace.json") if name.startswith("ProfilerStep"))
    assert steps == [f"ProfilerStep#{step}" for step in (1, 2, 4, 5, 7, 8)]
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    flows = [(event["ph"], event["cat"], event["id"]) for event in events if event["ph"] in "sf"]
    assert len(flows) == len(set(flows)) == 12
    with trace_processor.load(tmp_path / "trace.json") as trace:
        assert trace.errors() == {}
        [row] = trace.query("select count(*) as n from flow")
    assert row["n"] == 6


@since_2_13
@pytest.mark.parametrize("options", OPTIONS, ids=names_of)
def test_lines_and_the_way_through_python_give_the_same_trace(tmp_path, options):
    results = record(**options).profiler.kineto_results
    names = find_original_names(results)
    results.save(str(tmp_path / "kineto.json"))
    kineto = (tmp_path / "kineto.json").read_bytes()
    lines, unread = (
        read_text(ChunkedKineto(kineto, 10_000), names.in_order),
        read_text(ChunkedKineto(kineto, 10_000), None),
    )
    assert (lines.is_valid, bool(unread.lines)) == (True, False)
    copy_trace(lines, tmp_path / "lines.json", {})
    rewrite_trace([(unread, names.by_span)], tmp_path / "python.json", {})
    native, python = (in_order(tmp_path / name) for name in ("lines.json", "python.json"))
    assert native == python


def in_order(path: Path) -> tuple[list[dict], dict]:
    """Return the events, and the metadata of processes and threads, which may occur twice."""
    events = read_chrome(path).events
    metadata = {(event["name"], event["pid"], event["tid"]): event["args"] for event in events if event["ph"] == "M"}
    return [event for event in events if event["ph"] != "M"], metadata


def test_a_window_that_kineto_saved_for_a_user_is_still_exported(tmp_path):
    pytest.importorskip("torch.profiler._chrome_trace_export")
    profiler = record()
    profiler.profiler.kineto_results.save(str(tmp_path / "theirs.json"))
    profiler.export_chrome_trace(tmp_path / "ours.json")
    assert annotations(tmp_path / "ours.json") == ODD_NAMES
    with trace_processor.load(tmp_path / "ours.json") as trace:
        assert trace.errors() == {}


def test_error_of_a_second_export_explains_that_kineto_saves_once(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.profiler._chrome_trace_export", None)
    profiler = record(["plain"])
    profiler.profiler.kineto_results.save(str(tmp_path / "theirs.json"))
    with pytest.raises(RuntimeError, match="saves once"):
        profiler.export_chrome_trace(tmp_path / "ours.json")
    assert os.listdir(tmp_path) == ["theirs.json"]


def test_a_process_forked_while_kineto_saves_does_not_keep_the_export_waiting(tmp_path, monkeypatch):
    children = []
    began = threading.Event()
    read = kineto_stream._PipeStream.read

    def read_beside_a_child(pipe) -> bytes:
        if not children:
            children.append(multiprocessing.get_context("fork").Process(target=began.wait, args=(30,)))
            children[0].start()
        return read(pipe)

    monkeypatch.setattr(kineto_stream._PipeStream, "read", read_beside_a_child)
    record(["plain"]).export_chrome_trace(tmp_path / "trace.json")
    assert annotations(tmp_path / "trace.json") == ["plain"]
    for child in children:
        assert child.is_alive()
        child.kill()
        child.join()


def test_python_frames_of_other_threads_are_not_on_the_main_thread(tmp_path):
    """Kineto puts them on thread 0. Perfetto shows that as the main thread, where they overlap."""
    ready, done = threading.Event(), threading.Event()

    def wait():
        ready.set()
        done.wait()

    waiting = threading.Thread(target=wait)
    waiting.start()
    ready.wait()
    profiler = record(with_stack=True)
    done.set()
    waiting.join()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    frames = [event for event in events if event.get("cat") == "python_function"]
    assert any("_bootstrap" in event["name"] for event in frames)
    assert all(event["tid"] for event in frames)
    with trace_processor.load(path) as trace:
        assert trace.errors() == {}
