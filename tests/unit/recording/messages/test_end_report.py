"""End report of a run: recorded data and its location, and the next command."""

import logging
import re
import shutil

import pytest

from kinetoscope import Callback, JSONTraceHandler, Profiler, ProfilerAction, TraceHandler, cyclic_schedule
from kinetoscope.errors import FolderNotEmptyError, FolderNotWritableError
from kinetoscope.testing import MemoryTraceHandler

ALWAYS = lambda state: ProfilerAction.ACTIVE  # noqa: E731
NEVER = lambda state: ProfilerAction.SKIP  # noqa: E731


CLOSE_S = 300.0
"""The limit of a close: on a busy machine the process that merges needs more than the default."""


def run(profiler, batches=6):
    with profiler:
        for _ in profiler.batches(range(batches)):
            pass


def test_stderr_shows_unsaved_data_and_the_next_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(Profiler(ALWAYS, JSONTraceHandler("runs/mine/traces"), close_timeout_s=CLOSE_S))
    assert capsys.readouterr().err == (
        "Kinetoscope: 1 window recorded in 6 batches, saved to runs/mine/traces/merged_trace.json\n"
        "kinetoscope summary runs/mine\n"
    )


def test_message_appears_once_and_not_also_in_an_info_log(caplog, capsys):
    caplog.set_level(logging.INFO, "kinetoscope")
    profiler = Profiler(ALWAYS, MemoryTraceHandler())
    run(profiler)
    profiler.close()
    assert capsys.readouterr().err == "Kinetoscope: 1 window recorded in 6 batches\n"
    assert caplog.messages == []


def test_messages_go_to_the_log_without_stderr(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "kinetoscope")
    monkeypatch.setattr("sys.stderr", None)
    run(Profiler(ALWAYS, MemoryTraceHandler()))
    assert caplog.messages == ["Kinetoscope: 1 window recorded in 6 batches"]


def test_command_is_copyable_with_a_space_in_the_folder_and_names_are_escaped(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(Profiler(ALWAYS, JSONTraceHandler("my run\x1b[31m/traces")))
    output = capsys.readouterr().err
    assert "kinetoscope summary 'my run" in output
    assert "\x1b" not in output


class Unwritable:
    def __init__(self, error):
        self.error = error

    def write(self, text):
        raise self.error

    def isatty(self):
        raise self.error


@pytest.mark.parametrize("error", [OSError(28, "No space"), ValueError("closed"), RuntimeError("reentrant call")])
def test_a_stderr_that_cannot_be_written_to_is_no_error_of_the_run(error, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", Unwritable(error))
        run(Profiler(ALWAYS, MemoryTraceHandler(), strict=True))
    assert caplog.messages == []


def test_quiet_suppresses_messages_but_not_the_warning(caplog, capsys):
    caplog.set_level(logging.INFO, "kinetoscope")
    run(Profiler(ALWAYS, MemoryTraceHandler(), quiet=True))
    assert (caplog.messages, capsys.readouterr().err) == ([], "")
    run(Profiler(NEVER, MemoryTraceHandler(), quiet=True))
    assert "the schedule returned skip for each of the 6 batches" in caplog.text


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_window_that_its_handler_failed_to_save_is_not_reported_as_empty(error, caplog):
    class Failing(TraceHandler):
        def process_cycle(self, cycle):
            raise error

    run(Profiler(ALWAYS, Failing(), spool_folder=False))
    assert caplog.messages[-1] == "No recorded window was saved. The errors above give the reason."


def test_traces_deleted_meanwhile_are_not_reported_as_saved(tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.chdir(tmp_path)
    schedule = cyclic_schedule(warmup=0, active=1, per="run")
    profiler = Profiler(schedule, JSONTraceHandler("runs/mine/traces"), spool_folder=False).start()
    profiler.step()
    profiler.lifecycle.drain(60)
    shutil.rmtree("runs")
    profiler.close()
    output = capsys.readouterr().err
    assert "saved to" not in output
    assert "kinetoscope summary" not in output
    assert "The traces in runs/mine/traces were deleted or moved during the run." in caplog.messages


def test_kinetoscope_source_failure_is_one_line_and_user_source_failure_a_location(caplog):
    class Failing(Callback):
        def batch_end(self, state, logger):
            raise ValueError("no such tensor\nand more")

    run(Profiler(ALWAYS, MemoryTraceHandler(), sources=[Failing()], quiet=True))
    assert "Traceback" in caplog.text
    caplog.clear()
    Failing.__module__ = "kinetoscope.sources.failing"
    run(Profiler(ALWAYS, MemoryTraceHandler(), sources=[Failing()], quiet=True))
    (record,) = caplog.records
    assert re.search(r"ValueError: no such tensor \(test_end_report.py:\d+\)$", record.message)


def test_handlers_and_sources_may_lack_any_method(caplog):
    class OnlyCycles:
        cycles = 0

        def process_cycle(self, cycle):
            self.cycles += 1

    class OnlyBatches:
        batches = 0

        def batch_end(self, state, logger):
            self.batches += 1

    handler, source = OnlyCycles(), OnlyBatches()
    run(Profiler(ALWAYS, handler, sources=[source], strict=True))
    assert (handler.cycles, source.batches) == (1, 6)
    assert caplog.messages == []


class EventsOnly(TraceHandler):
    """Counts the events that it gets one at a time."""

    def __init__(self):
        self.num_events = 0

    def process_duration_event(self, name, categories, is_start, timestamp, wall_clock_time_ns):
        self.num_events += 1


class FilesOnly(TraceHandler):
    def __init__(self):
        self.names = []

    def process_chrome_json_trace_file(self, filepath):
        self.names.append(filepath.name)


def test_events_that_a_handler_of_ones_own_got_were_recorded(capsys):
    handler = EventsOnly()
    run(Profiler(ALWAYS, handler))
    assert handler.num_events > 12
    assert capsys.readouterr().err == f"Kinetoscope: {handler.num_events} events recorded in 6 batches\n"


def test_events_count_though_the_handlers_are_replaced_during_the_run(caplog):
    with Profiler(ALWAYS, EventsOnly()) as profiler:
        for number in profiler.batches(range(6)):
            if number == 3:
                profiler.trace_handlers = [FilesOnly()]
    assert "Nothing was recorded" not in caplog.text


def test_a_file_that_a_handler_of_ones_own_got_was_recorded(tmp_path, caplog):
    handler = FilesOnly()
    (tmp_path / "mine.json").write_text("[]")
    with Profiler(ALWAYS, handler) as profiler:
        for _ in profiler.batches(range(2)):
            profiler.record_chrome_json_trace_file(tmp_path / "mine.json")
    assert len(handler.names) == 2
    assert caplog.messages == []


def test_a_handler_that_raised_at_its_first_event_got_nothing(caplog):
    class Broken(TraceHandler):
        def process_duration_event(self, *arguments, **what):
            raise ValueError

    run(Profiler(ALWAYS, Broken()))
    assert "Nothing was recorded: no marker, source or loop" in caplog.text


def fail(self, state, logger):
    raise ValueError("not today")


@pytest.mark.parametrize("event", ["init", "fit_start"])
def test_failed_setup_is_reported_by_its_own_error_only(event, tmp_path, caplog):
    source = type("Failing", (Callback,), {event: fail})()
    with pytest.raises(ValueError, match="not today"):
        run(Profiler(ALWAYS, JSONTraceHandler(str(tmp_path / "traces")), sources=source))
    assert caplog.messages == []


def test_used_or_invalid_folder_is_reported_by_its_own_error_only(tmp_path, caplog):
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "old.json").write_text("[]")
    (tmp_path / "file").write_text("")
    for folder, error in ((tmp_path / "traces", FolderNotEmptyError), (tmp_path / "file", FolderNotWritableError)):
        with pytest.raises(error):
            run(Profiler(ALWAYS, JSONTraceHandler(str(folder))))
    assert caplog.messages == []


def test_run_with_a_deleted_working_folder_reports_where_its_traces_are(tmp_path, monkeypatch, caplog, capsys):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PYTHONPATH", "src")  # a relative one: no Python starts in a folder that is gone
    traces = JSONTraceHandler(str(tmp_path / "run" / "traces"))
    with Profiler(ALWAYS, traces, strict=True, close_timeout_s=CLOSE_S) as profiler:
        for number in profiler.batches(range(6)):
            if number == 3:
                (tmp_path / "work").rmdir()
    assert f"saved to {tmp_path}/run/traces/merged_trace.json\n" in capsys.readouterr().err
    assert caplog.messages == []


class Unsayable(MemoryTraceHandler):
    @property
    def saved_to(self):
        raise RuntimeError("no place")


def test_uploads_are_awaited_even_if_saved_files_cannot_be_printed(tmp_path, caplog):
    pytest.importorskip("fsspec")
    handlers = [JSONTraceHandler(str(tmp_path / "run" / "traces")), Unsayable()]
    run(Profiler(ALWAYS, handlers, upload_to=f"file://{tmp_path}/store", close_timeout_s=CLOSE_S))
    assert [path.name for path in tmp_path.glob("store/**/merged_trace.json")] == ["merged_trace.json"]
    assert "no place" in caplog.text
