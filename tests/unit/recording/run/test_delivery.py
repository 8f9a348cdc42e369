"""A save that fails is tried again, and the records are kept until then."""

import gc
import json
import logging
import os
import shutil
import weakref
from contextlib import contextmanager

import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, load, marker, merge_traces
from kinetoscope.core.job.event import Callback
from kinetoscope.core.text.wording import format_count
from kinetoscope.formats.manifest import read_manifest
from kinetoscope.recording.window.trace_handler import TraceHandler
from kinetoscope.spool.contents import read_spool_folder
from kinetoscope.testing import MemoryTraceHandler


def every_second_batch_is_a_cycle(state):
    return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch % 2 else ProfilerAction.SKIP


@contextmanager
def unwritable(folder):
    """Put a file in place of the folder for a while: even root cannot write into it."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("")
    yield
    folder.unlink()
    aside.rename(folder)


def json_handler(tmp_path, **options):
    return JSONTraceHandler(f"{tmp_path}/run/traces", **{"merged_trace_filename": None} | options)


def header(path):
    return json.loads(path.read_text())["kinetoscope"]


def works_in(path):
    events = json.loads(path.read_text())["traceEvents"]
    return sum(event["ph"] == "X" and event["name"] == "work" for event in events)


def find_spool_folders(tmp_path):
    return sorted((tmp_path / "run" / "live").glob("*"))


def live_names(folder):
    """Return the name of every record in a spool folder."""
    tracks = [(process, track) for process in read_spool_folder(folder).processes for track in process.tracks]
    return [process.names[record.name].name for process, track in tracks for record in track.records()]


def record_cycle(profiler, num_spans=1):
    """Train two batches, the second one a cycle, and wait until its save has succeeded or failed."""
    for batch in profiler.batches(range(2)):
        for _ in range(num_spans * batch):
            with profiler.marker("work"):
                pass
    assert profiler.lifecycle.drain(60)


class Failing(TraceHandler):
    """A handler that fails at the calls with the given numbers, and keeps the cycles of all calls."""

    def __init__(self, failing, error=None):
        self.failing, self.error = failing, error or OSError("no space left")
        self.called, self.took = [], []

    def process_cycle(self, cycle):
        self.called.append(cycle.number)
        if len(self.called) - 1 in self.failing:
            raise self.error
        self.took.append(cycle.number)


def test_folder_unwritable_for_one_cycle_loses_no_span_and_is_reported_once(tmp_path, caplog):
    handler = json_handler(tmp_path)
    with Profiler(every_second_batch_is_a_cycle, handler) as profiler:
        record_cycle(profiler)
        with unwritable(tmp_path / "run" / "traces"):
            record_cycle(profiler)
            record_cycle(profiler)
        record_cycle(profiler)
        paths = sorted((tmp_path / "run" / "traces").glob("ep*.json"))
    assert [path.name for path in paths] == [f"ep{n}-ba{2 * n + 2}-rank0.json" for n in range(4)]
    assert [works_in(path) for path in paths] == [1] * 4
    assert [header(path)["cycle"] for path in paths] == [0, 1, 2, 3]
    assert [timestamp.batch for timestamp, _ in handler.saved_traces] == [2, 4, 6, 8]
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert "could not save cycle 1" in caplog.text
    assert not (tmp_path / "run" / "live").exists()


def test_a_cycle_that_failed_to_the_end_stays_live_and_another_close_saves_it(tmp_path, caplog):
    tmp_path = tmp_path / "my runs"
    handler = json_handler(tmp_path)
    profiler = Profiler(every_second_batch_is_a_cycle, handler).start()
    record_cycle(profiler)
    with unwritable(tmp_path / "run" / "traces"):
        record_cycle(profiler, num_spans=7)
        profiler.close()
        (folder,) = find_spool_folders(tmp_path)
        assert live_names(folder).count("work") == 7
        assert str(folder) in caplog.text
        assert f"kinetoscope recover '{tmp_path / 'run'}'" in caplog.text
        with Profiler(every_second_batch_is_a_cycle):  # another profiler can start
            pass
    profiler.close()
    assert [works_in(path) for path in sorted(handler._folder.path.glob("ep*.json"))] == [1, 7]
    assert not (tmp_path / "run" / "live").exists()


def test_a_handler_gets_an_unsaved_cycle_again_and_no_saved_cycle_twice(tmp_path):
    failing, good = Failing({1, 2, 3}), MemoryTraceHandler()
    with Profiler(every_second_batch_is_a_cycle, [failing, good]) as profiler:
        for _ in range(5):
            record_cycle(profiler)
    assert failing.took == [0, 3, 1, 2, 4] or sorted(failing.took) == [0, 1, 2, 3, 4]
    assert len(set(failing.took)) == len(failing.took)
    assert [cycle.number for cycle in good.cycles] == [0, 1, 2, 3, 4]


def test_a_save_that_keeps_failing_is_tried_a_last_time_when_the_run_ends():
    failing = Failing({0, 1, 2})
    with Profiler(every_second_batch_is_a_cycle, failing) as profiler:
        record_cycle(profiler)
        record_cycle(profiler)
        assert failing.took == []
    assert sorted(failing.took) == [0, 1]


def test_a_failed_write_gives_its_name_back(tmp_path):
    handler = json_handler(tmp_path, merged_trace_filename=None)
    handler._folder._filename = type(handler._folder._filename)("trace.json")
    with Profiler(every_second_batch_is_a_cycle, handler) as profiler:
        with unwritable(tmp_path / "run" / "traces"):
            record_cycle(profiler)
        record_cycle(profiler)
    assert sorted(path.name for path in handler._folder.path.glob("*.json")) == ["trace.2.json", "trace.json"]


def test_a_manifest_that_cannot_be_written_is_a_save_that_failed(tmp_path):
    handler = json_handler(tmp_path)
    with Profiler(every_second_batch_is_a_cycle, handler) as profiler:
        manifest = tmp_path / "run" / "traces" / ".manifest" / "rank0.jsonl"
        manifest.rename(manifest.with_name("aside"))
        manifest.mkdir()
        record_cycle(profiler)
        assert list(handler._folder.path.glob("ep*.json")) == []
        manifest.rmdir()
        manifest.with_name("aside").rename(manifest)
        record_cycle(profiler)
    names = ["ep0-ba2-rank0.json", "ep1-ba4-rank0.json"]
    assert sorted(path.name for path in handler._folder.path.glob("ep*.json")) == names
    (rank,) = read_manifest(handler._folder.path)
    assert sorted(trace.path for trace in rank.traces) == names


def test_a_contributed_file_is_there_when_the_cycle_is_tried_again(tmp_path):
    handler, contributed = json_handler(tmp_path), tmp_path / "kineto.json"
    event = {"ph": "X", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 1.0}
    with Profiler(every_second_batch_is_a_cycle, handler) as profiler:
        with unwritable(tmp_path / "run" / "traces"):
            for _ in profiler.batches(range(2)):
                contributed.write_text(json.dumps({"traceEvents": [event]}))
                profiler.record_chrome_json_trace_file(contributed)
                contributed.unlink()
            assert profiler.lifecycle.drain(60)
    (path,) = handler._folder.path.glob("ep*.json")
    assert "aten::mm" in path.read_text()
    assert [path for path in tmp_path.iterdir() if "kineto" in path.name] == []


class Contributor(Callback):
    """A source that cannot write its trace at first."""

    def __init__(self, folder, num_failing):
        self.folder, self.num_failing, self.num_calls = folder, num_failing, 0

    def batch_end(self, state, logger):
        if state.timestamp.batch % 2 == 0:
            state.profiler.run.contribute(self.make)

    def make(self, contributions):
        self.num_calls += 1
        if self.num_calls <= self.num_failing:
            raise OSError("no space left")
        path = self.folder / f"{self.num_calls}.json"
        path.write_text('{"traceEvents": []}')
        contributions.add_temporary(path)


class FileCounter(TraceHandler):
    def __init__(self):
        self.files, self.cycles = [], []

    def process_chrome_json_trace_file(self, filepath):
        assert filepath.exists()
        self.files.append(filepath)

    def process_cycle(self, cycle):
        self.cycles.append((cycle.number, len(cycle.files)))


def test_a_trace_that_a_source_could_not_write_is_written_before_its_cycle_is_saved(tmp_path):
    handler = FileCounter()
    with Profiler(every_second_batch_is_a_cycle, handler, sources=[Contributor(tmp_path, 1)]) as profiler:
        record_cycle(profiler)
        record_cycle(profiler)
    assert sorted(handler.cycles) == [(0, 1), (1, 1)]
    assert len(handler.files) == 2
    assert list(tmp_path.glob("*.json")) == []


def test_if_a_source_can_never_write_the_cycles_lack_only_its_trace(tmp_path, caplog):
    handler = FileCounter()
    with Profiler(every_second_batch_is_a_cycle, handler, sources=[Contributor(tmp_path, 10**6)]) as profiler:
        for _ in range(6):
            record_cycle(profiler)
        assert len(handler.cycles) >= 3  # results in memory are not kept forever
    assert sorted(handler.cycles) == [(number, 0) for number in range(6)]
    assert "is lost" in caplog.text


def test_oldest_unsaved_cycle_is_dropped_at_the_limit_and_noted_in_the_next_trace(tmp_path, caplog):
    handler = json_handler(tmp_path)
    with Profiler(every_second_batch_is_a_cycle, handler, live_bytes_max=1 << 20) as profiler:
        with unwritable(tmp_path / "run" / "traces"):
            for _ in range(6):
                record_cycle(profiler, num_spans=8_000)
        record_cycle(profiler)
    paths = sorted(handler._folder.path.glob("ep*.json"))
    numbers = [header(path)["cycle"] for path in paths]
    num_lost = 7 - len(paths)
    assert 1 <= num_lost <= 5
    assert numbers == list(range(num_lost, 7))
    assert {header(path)["lost_cycles"] for path in paths} == {num_lost}
    assert {header(path)["dropped"] for path in paths} == {0}
    lost_records = header(paths[-1])["lost_records"]
    assert num_lost * 8_000 <= lost_records <= num_lost * 8_010
    sentence = f"{num_lost} cycle{'s' * (num_lost > 1)} with {lost_records:,} records could not be saved"
    merge_traces(tmp_path / "merged.json", *paths)
    for trace in (paths[-1], tmp_path / "merged.json"):
        assert sentence in " ".join(load(trace).notes)
    assert f"Lost so far: {format_count(num_lost, 'cycle')} with {format_count(lost_records, 'record')}." in caplog.text


def test_unsaved_cycles_take_at_most_live_bytes_max(tmp_path):
    with Profiler(every_second_batch_is_a_cycle, json_handler(tmp_path), live_bytes_max=4 << 20) as profiler:
        (folder,) = find_spool_folders(tmp_path)
        with unwritable(tmp_path / "run" / "traces"):
            for _ in range(10):
                record_cycle(profiler, num_spans=20_000)
                assert sum(path.stat().st_blocks * 512 for path in folder.glob("*.chunk")) <= 4 << 20
        assert profiler.run.recorder.used_bytes <= 4 << 20


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(3), GeneratorExit()])
def test_failing_handler_is_disabled_and_its_unsaved_cycles_stay_in_the_spool(tmp_path, error, caplog):
    class Broken(JSONTraceHandler):
        def process_cycle(self, cycle):
            raise error

    good = MemoryTraceHandler()
    broken = Broken(f"{tmp_path}/run/traces", merged_trace_filename=None)
    profiler = Profiler(every_second_batch_is_a_cycle, [broken, good]).start()
    record_cycle(profiler, num_spans=3)
    record_cycle(profiler, num_spans=3)
    profiler.close()
    assert len(good.spans("work")) == 6
    (folder,) = find_spool_folders(tmp_path)
    assert live_names(folder).count("work") == 6
    assert len([record for record in caplog.records if "Broken" in record.message]) == 1
    shutil.rmtree(folder)


def test_failing_user_handler_keeps_no_spooled_data_that_others_have_saved(tmp_path):
    handlers = [Failing(range(10), RuntimeError("a bug")), json_handler(tmp_path)]
    with Profiler(every_second_batch_is_a_cycle, handlers) as profiler:
        record_cycle(profiler)
        record_cycle(profiler)
    assert handlers[0].called == [0]
    assert not (tmp_path / "run" / "live").exists()


class Tensor:
    """A large object that a frame of a failing save may hold."""


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("error", [OSError("full"), RuntimeError("a bug")])
def test_an_error_keeps_nothing_alive_that_was_about_to_be_saved(strict, error):
    alive = []

    class Saving(TraceHandler):
        def process_cycle(self, cycle):
            tensor = Tensor()
            alive.append(weakref.ref(tensor))
            try:
                raise KeyError("inner")
            except KeyError:
                raise type(error)(*error.args) from None

    profiler = Profiler(every_second_batch_is_a_cycle, Saving(), strict=strict).start()
    record_cycle(profiler)
    gc.collect()
    assert [reference() for reference in alive if reference() is not None] == []
    if strict:
        with pytest.raises(type(error), match=str(error)) as caught:
            profiler.close()
        assert "process_cycle" in "".join(caught.value.__notes__)
    else:
        profiler.close()


def test_records_of_a_worker_in_an_unsaved_cycle_stay_when_a_later_one_is_saved(tmp_path):
    class NeverTheFirst(JSONTraceHandler):
        def process_cycle(self, cycle):
            if cycle.number == 0:
                raise OSError("no space left")
            super().process_cycle(cycle)

    def fork_a_worker():
        if (child := os.fork()) == 0:
            with marker("in the worker"):
                pass
            os._exit(0)
        os.waitpid(child, 0)

    handler = NeverTheFirst(f"{tmp_path}/run/traces", merged_trace_filename=None)
    with Profiler(every_second_batch_is_a_cycle, handler) as profiler:
        for _ in range(2):
            for batch in profiler.batches(range(2)):
                if batch == 1:
                    fork_a_worker()
            assert profiler.lifecycle.drain(60)
        (folder,) = find_spool_folders(tmp_path)
        assert live_names(folder).count("in the worker") >= 1
    shutil.rmtree(folder)
