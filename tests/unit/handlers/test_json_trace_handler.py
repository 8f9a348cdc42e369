"""JSONTraceHandler on a real profiler: names, folders, what is in the files, what is kept."""

import gzip
import json
import os
from pathlib import Path

import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, State, cyclic_schedule
from kinetoscope.errors import FileNameError, FolderNotEmptyError, FolderNotWritableError, SettingsError
from kinetoscope.testing import FakeClock
from support.trace_processor.trace_processor import load

EVERY_BATCH = cyclic_schedule(warmup=0, active=1, repeat=0)


def record(handler, *, schedule=EVERY_BATCH, batches=1, body=None, state=None, clock=None, **settings):
    with Profiler(schedule, handler, state=state, strict=True, clock=clock, **settings) as profiler:
        for batch in profiler.batches(range(batches)):
            if body is not None:
                body(profiler, batch)
    return profiler


def events(path, name=None):
    trace = json.loads(Path(path).read_text())
    return [event for event in trace["traceEvents"] if name in (None, event["name"])]


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir() if path.is_file())


def test_each_cycle_is_a_file_named_after_the_completed_batches(tmp_path):
    record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None), batches=3)
    assert names(tmp_path) == ["ep0-ba1-rank0.json", "ep0-ba2-rank0.json", "ep0-ba3-rank0.json"]


def test_the_default_folder_is_named_after_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record(JSONTraceHandler(merged_trace_filename=None), state=State(run_name="my run"))
    assert names("my run/traces") == ["ep0-ba1-rank0.json"]


def test_a_span_has_true_nanoseconds_its_threads_track_its_categories_and_its_batch(tmp_path):
    clock = FakeClock(monotonic_ns=10**9, unix_ns=1_700_000_000_123_456_789)

    def body(profiler, batch):
        with profiler.marker("work", categories=("a", "b")):
            clock.advance(1_234_567)

    record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None), body=body, clock=clock)
    trace = json.loads((tmp_path / "ep0-ba1-rank0.json").read_text())
    (span,) = [event for event in trace["traceEvents"] if event["name"] == "work"]
    begin_ns = trace["baseTimeNanoseconds"] + round(span["ts"] * 1000)
    assert begin_ns == 1_700_000_000_123_456_789
    assert span["dur"] == 1234.567
    assert (span["ph"], span["cat"], span["args"]) == ("X", "a,b", {"epoch": 0, "batch": 0})
    (thread,) = [event for event in trace["traceEvents"] if event["name"] == "thread_name"]
    assert (thread["tid"], thread["args"]["name"]) == (span["tid"], "MainThread")


def test_header_has_the_owner_of_the_trace_and_the_clock_relation(tmp_path):
    record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None), state=State(run_name="r"))
    header = json.loads((tmp_path / "ep0-ba1-rank0.json").read_text())
    section = header["kinetoscope"]
    assert (section["run_name"], section["rank"], section["world_size"], section["cycle"]) == ("r", 0, 1, 0)
    assert (section["begin"]["batch"], section["end"]["batch"]) == (0, 1)
    assert len(section["clock"]["anchors"]) == 2
    assert header["distributedInfo"] == {"rank": 0, "world_size": 1}


def test_unusual_names_and_values_make_a_valid_trace(tmp_path):
    unusual = ['quote "', "back\\slash", "tab\t", "new\nline", "\x00\x1f", "ünïcödé 火", "\ud800", "", "ends in \\"]

    def body(profiler, batch):
        for name in unusual:
            with profiler.marker(name):
                profiler.marker(name).instant()
        profiler.marker("values").counter({"nan": float("nan"), "inf": float("inf"), "good": 1.5, "ünï\n": 2})

    record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None), body=body)
    path = tmp_path / "ep0-ba1-rank0.json"

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    trace = json.loads(path.read_text(), parse_constant=refuse)
    spans = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
    assert set(unusual) - {"\ud800"} <= spans
    (counter,) = [event for event in trace["traceEvents"] if event["name"] == "values"]
    assert counter["args"]["good"] == 1.5
    assert set(counter["not_finite"]) == {"nan", "inf"}
    with load(path) as processor:
        assert processor.errors() == {}
        (row,) = processor.query("select count(*) as n from slice where dur >= 0")
        assert row["n"] >= 2 * len(unusual)


def test_interleaved_spans_of_a_thread_move_to_an_extra_track_with_their_times(tmp_path):
    clock = FakeClock(monotonic_ns=10**9)

    def body(profiler, batch):
        first, second = profiler.marker("first"), profiler.marker("second")
        one = first.begin()
        clock.advance(1000)
        other = second.begin()
        clock.advance(1000)
        first.end(one)
        clock.advance(1000)
        second.end(other)

    record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None), body=body, clock=clock)
    path = tmp_path / "ep0-ba1-rank0.json"
    (first,), (second,) = events(path, "first"), events(path, "second")
    assert (first["dur"], second["dur"], second["ts"] - first["ts"]) == (2.0, 2.0, pytest.approx(1.0))
    assert first["tid"] != second["tid"]
    assert any("overlap" in event["args"]["name"] for event in events(path, "thread_name"))
    with load(path) as processor:
        assert processor.errors() == {}


def test_a_contributed_trace_is_in_the_file_on_the_same_clock(tmp_path):
    kineto = {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 2.5, "dur": 1}
    file = tmp_path / "kineto.json"
    file.write_text(json.dumps({"baseTimeNanoseconds": 1_700_000_000 * 10**9, "traceEvents": [kineto]}))
    handler = JSONTraceHandler(str(tmp_path / "traces"), merged_trace_filename=None)
    record(handler, body=lambda profiler, batch: profiler.record_chrome_json_trace_file(file), clock=FakeClock())
    trace = json.loads((tmp_path / "traces" / "ep0-ba1-rank0.json").read_text())
    (op,) = [event for event in trace["traceEvents"] if event["name"] == "aten::mm"]
    assert trace["baseTimeNanoseconds"] + round(op["ts"] * 1000) == 1_700_000_000 * 10**9 + 2500


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x00\x01", b"not json"])
def test_a_contributed_file_that_is_no_trace_is_left_out_and_the_rest_is_saved(tmp_path, content):
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    handler = JSONTraceHandler(str(tmp_path / "traces"), merged_trace_filename=None)
    record(handler, body=lambda profiler, batch: profiler.record_chrome_json_trace_file(file))
    trace = json.loads((tmp_path / "traces" / "ep0-ba1-rank0.json").read_text())
    assert "bad.json" in trace["kinetoscope"]["repaired"][0]
    assert any(event["name"] == "event/batch" for event in trace["traceEvents"])


def test_a_name_that_ends_in_gz_is_compressed(tmp_path):
    record(JSONTraceHandler(str(tmp_path), "{batch}-{rank}.json.gz", merged_trace_filename=None))
    assert "traceEvents" in json.loads(gzip.decompress((tmp_path / "1-0.json.gz").read_bytes()))


def test_two_windows_that_end_at_the_same_batch_do_not_overwrite_each_other(tmp_path):
    handler = JSONTraceHandler(str(tmp_path), "r{rank}.json", merged_trace_filename=None)
    record(handler, batches=3)
    assert names(tmp_path) == ["r0.2.json", "r0.3.json", "r0.json"]


# -- merging, keeping -------------------------------------------------------------------------------------------


def test_the_merged_file_holds_all_cycles(tmp_path):
    record(JSONTraceHandler(str(tmp_path)), batches=3)
    merged = json.loads((tmp_path / "merged_trace.json").read_text())
    batches = [event for event in merged["traceEvents"] if event["name"] == "event/batch"]
    assert len(batches) == 3
    assert {event["pid"] for event in batches} == {0}
    assert len({event["tid"] for event in batches}) == 1


def test_all_traces_are_kept_by_default(tmp_path):
    handler = JSONTraceHandler(str(tmp_path), merged_trace_filename=None)
    record(handler, batches=3)
    assert [(int(stamp.batch), [path.name for path in paths]) for stamp, paths in handler.saved_traces] == [
        (1, ["ep0-ba1-rank0.json"]),
        (2, ["ep0-ba2-rank0.json"]),
        (3, ["ep0-ba3-rank0.json"]),
    ]


@pytest.mark.parametrize(("keep", "left"), [(0, []), (1, ["ep0-ba3-rank0.json"])])
def test_no_more_traces_are_kept_than_configured(tmp_path, keep, left):
    handler = JSONTraceHandler(str(tmp_path), merged_trace_filename=None, num_traces_to_keep=keep)
    record(handler, batches=3)
    assert names(tmp_path) == left
    assert len(handler.saved_traces) == keep


def test_deleted_traces_are_in_the_merged_file(tmp_path):
    handler = JSONTraceHandler(str(tmp_path), num_traces_to_keep=1)
    record(handler, batches=3)
    assert names(tmp_path) == ["ep0-ba3-rank0.json", "merged_trace.json"]
    assert len(events(tmp_path / "merged_trace.json", "event/batch")) == 3


def test_spans_of_a_window_over_several_epochs_have_the_epoch_in_which_they_began(tmp_path):
    with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler(str(tmp_path)), strict=True) as profiler:
        for _ in range(3):
            for _ in profiler.batches(range(2)):
                with profiler.marker("work"):
                    profiler.marker("moment").instant()
    for name in ("work", "moment"):
        found = [event["args"] for event in events(tmp_path / "merged_trace.json", name)]
        assert [(args["epoch"], args["batch"]) for args in found] == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]


# -- folders and names ------------------------------------------------------------------------------------------


def test_non_empty_folder_is_refused_by_name_and_left_untouched(tmp_path):
    (tmp_path / "precious.json").write_text("{}")
    with pytest.raises(FolderNotEmptyError, match=r"precious\.json.*overwrite=True"):
        record(JSONTraceHandler(str(tmp_path)))
    assert (tmp_path / "precious.json").read_text() == "{}"
    assert names(tmp_path) == ["precious.json"]


def test_empty_folders_in_the_trace_folder_are_no_content(tmp_path):
    (tmp_path / "cwd" / "deeper").mkdir(parents=True)
    record(JSONTraceHandler(str(tmp_path)))
    assert (tmp_path / "merged_trace.json").exists()


def test_a_file_deep_in_the_trace_folder_is_refused_naming_it(tmp_path):
    (tmp_path / "cwd" / "deeper").mkdir(parents=True)
    (tmp_path / "cwd" / "deeper" / "precious.json").write_text("{}")
    with pytest.raises(FolderNotEmptyError, match=r"cwd/deeper/precious\.json.*overwrite=True"):
        record(JSONTraceHandler(str(tmp_path)))


def test_a_second_run_into_the_same_folder_is_refused(tmp_path, monkeypatch):
    record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None))
    with pytest.raises(FolderNotEmptyError):
        record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None))


def test_with_overwrite_a_second_run_replaces_the_first_and_merges_only_its_own(tmp_path):
    record(JSONTraceHandler(str(tmp_path), overwrite=True), batches=3)
    record(JSONTraceHandler(str(tmp_path), overwrite=True), batches=1)
    assert len(events(tmp_path / "merged_trace.json", "event/batch")) == 1


def test_a_folder_that_cannot_be_written_is_refused_at_the_start_naming_it():
    with pytest.raises(FolderNotWritableError, match="/proc/nowhere"):
        record(JSONTraceHandler("/proc/nowhere"))


def test_an_unknown_variable_is_refused_at_construction(tmp_path):
    with pytest.raises(FileNameError, match=r"\{rnak\}"):
        JSONTraceHandler(filename="{rnak}.json")
    with pytest.raises(FileNameError, match="merged_trace_filename"):
        JSONTraceHandler(merged_trace_filename="{batch}.json")


def test_a_name_that_two_ranks_would_share_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(FileNameError, match=r"\{rank\}"):
        record(JSONTraceHandler(str(tmp_path), filename="trace.json"))


@pytest.mark.parametrize("number", [-2, -10])
def test_an_impossible_number_of_traces_to_keep_is_refused(number):
    with pytest.raises(SettingsError, match="num_traces_to_keep"):
        JSONTraceHandler(num_traces_to_keep=number)


def test_a_remote_name_that_cannot_work_is_refused_by_name():
    with pytest.raises(FileNameError, match=r"merged_trace_remote_file_name.*\{batch\}"):
        JSONTraceHandler(merged_trace_remote_file_name="{batch}.json")
    with pytest.raises(SettingsError, match="remote_file_name holds credentials"):
        JSONTraceHandler(remote_file_name="s3://key:secret@bucket/{rank}.json")


def test_nothing_recorded_writes_no_trace(tmp_path):
    record(JSONTraceHandler(str(tmp_path)), schedule=lambda state: ProfilerAction.SKIP, batches=50)
    assert names(tmp_path) == []


def test_restarted_attempt_writes_next_to_the_first(tmp_path, monkeypatch):
    record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    record(JSONTraceHandler(str(tmp_path), merged_trace_filename=None))
    assert names(tmp_path / "attempt1") == ["ep0-ba1-rank0.json"]


def start_under_torchrun(folder, monkeypatch, *, rank=0, world_size=2, port=1, restarts=0):
    """One rank's start in a job whose nodes have found each other, as torchrun counts it."""
    job = {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "a", "MASTER_PORT": port}
    counts = {"TORCHELASTIC_RESTART_COUNT": restarts, "RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": 1}
    for name, value in {**job, **counts}.items():
        monkeypatch.setenv(name, str(value))
    found = record(JSONTraceHandler(str(folder), merged_trace_filename=None)).run.attempt.restart
    for manifest in folder.rglob("rank*.jsonl"):  # the process of the next start is another one
        manifest.write_text(manifest.read_text().replace(f'"pid":{os.getpid()}', '"pid":0'))
    return found


def test_uncounted_torchrun_restart_writes_next_to_the_first(tmp_path, monkeypatch):
    """It counts the failures of a node's own ranks only: those of the other node are restarted as well."""
    starts = [(0, 0), (1, 0), (0, 0), (1, 1), (0, 1), (1, 1)]
    found = [start_under_torchrun(tmp_path, monkeypatch, rank=rank, restarts=count) for rank, count in starts]
    assert found == [0, 0, 1, 1, 2, 2]
    for folder in (tmp_path, tmp_path / "attempt1", tmp_path / "attempt2"):
        assert names(folder) == ["ep0-ba1-rank0.json", "ep0-ba1-rank1.json"]


def test_ranks_that_join_a_job_start_an_attempt_with_the_present_ones(tmp_path, monkeypatch):
    assert start_under_torchrun(tmp_path, monkeypatch, rank=0, world_size=1) == 0
    assert start_under_torchrun(tmp_path, monkeypatch, rank=1, world_size=2) == 1
    assert start_under_torchrun(tmp_path, monkeypatch, rank=0, world_size=2) == 1


def test_second_run_of_a_process_in_one_folder_is_refused_under_torchrun_too(tmp_path, monkeypatch):
    start_under_torchrun(tmp_path, monkeypatch, world_size=2)
    handler = JSONTraceHandler(str(tmp_path / "again"), merged_trace_filename=None)
    record(handler)
    with pytest.raises(FolderNotEmptyError):
        record(JSONTraceHandler(str(tmp_path / "again"), merged_trace_filename=None))


def test_another_torchrun_job_in_a_used_folder_is_refused_despite_an_equal_id(tmp_path, monkeypatch):
    start_under_torchrun(tmp_path, monkeypatch, port=1)
    with pytest.raises(FolderNotEmptyError):
        start_under_torchrun(tmp_path, monkeypatch, port=2)


def test_kinetos_unnumbered_track_of_other_threads_gets_a_number(tmp_path):
    frame = {"ph": "X", "name": "run", "cat": "python_function", "pid": os.getpid(), "tid": 0, "ts": 2.5, "dur": 1}
    file = tmp_path / "kineto.json"
    file.write_text(json.dumps({"baseTimeNanoseconds": 1_700_000_000 * 10**9, "traceEvents": [frame]}))
    handler = JSONTraceHandler(str(tmp_path / "traces"), merged_trace_filename=None)
    record(handler, body=lambda profiler, batch: profiler.record_chrome_json_trace_file(file))
    path = tmp_path / "traces" / "ep0-ba1-rank0.json"
    (frame,), (batch,) = events(path, "run"), events(path, "event/batch")
    assert frame["pid"] == batch["pid"] == 0
    assert frame["tid"] not in (0, batch["tid"])
