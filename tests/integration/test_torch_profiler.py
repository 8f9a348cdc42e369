"""TorchProfiler in a real loop: Kineto's windows follow the schedule, and its files are in the cycles."""

import gc
import gzip
import json
import signal
import weakref

import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, TorchProfiler, cyclic_schedule
from kinetoscope.errors import FileNameError, FolderNotEmptyError, ProfilerStateError, SettingsError
from kinetoscope.recording.window.trace_handler import TraceHandler
from support.signal_injection import InjectedSignals
from support.trace_processor.trace_processor import load

torch = pytest.importorskip("torch")
ALWAYS_TWO = cyclic_schedule(warmup=0, active=2)


class Files(TraceHandler):
    """Reads what was contributed to each cycle."""

    def __init__(self):
        self.cycles = []

    def process_cycle(self, cycle):
        self.cycles.append([json.loads(path.read_bytes()) for path in cycle.files])


def record(source, handler=None, *, schedule=None, batches=6, epochs=1):
    handler = handler or Files()
    schedule = schedule or cyclic_schedule(skip_first=1, warmup=1, active=2)
    with Profiler(schedule, handler, sources=[source], strict=True) as profiler:
        marker = profiler.marker("multiply")
        for _ in range(epochs):
            for _ in profiler.batches(range(batches)):
                with marker:
                    torch.ones(8, 8) @ torch.ones(8, 8)
    return handler


def steps(trace):
    return sorted(event["name"] for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep"))


def test_the_torch_trace_covers_the_active_batches_and_joins_the_cycle(tmp_path):
    handler = record(TorchProfiler(str(tmp_path)), epochs=2)
    assert [len(files) for files in handler.cycles] == [1, 1]
    assert steps(handler.cycles[0][0]) == ["ProfilerStep#2", "ProfilerStep#3"]
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [
        "rank0.10.pt.trace.json",
        "rank0.4.pt.trace.json",
    ]


def test_operators_are_inside_the_markers_around_them(tmp_path):
    record(TorchProfiler(str(tmp_path / "torch")), JSONTraceHandler(str(tmp_path / "traces")))
    path = tmp_path / "traces" / "merged_trace.json"
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    markers = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == "multiply"]
    operators = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == "aten::mm"]
    assert len(operators) == 2
    assert all(any(b - 5 <= begin and end <= e + 5 for b, e in markers) for begin, end in operators)
    with load(path) as trace:
        assert trace.errors() == {}


def spans_of(folder, name):
    events = json.loads((folder / "merged_trace.json").read_text())["traceEvents"]
    return [(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == name]


def test_the_trace_shows_how_long_training_waits_for_kineto_to_start_and_to_stop(tmp_path):
    record(TorchProfiler(str(tmp_path / "torch")), JSONTraceHandler(str(tmp_path / "traces")))
    (start,), (stop,) = (spans_of(tmp_path / "traces", f"kinetoscope/{what}") for what in ("start", "stop"))
    batches = sorted(spans_of(tmp_path / "traces", "event/batch"))
    (recorded,) = spans_of(tmp_path / "traces", "PyTorch Profiler (0)")
    assert [batch for batch in batches if recorded[0] <= batch[0] <= recorded[1]] == batches[1:]
    assert batches[0][1] <= start[0] <= recorded[0]
    assert start[1] <= batches[1][0]
    assert batches[-1][1] <= stop[0] <= recorded[1]


def test_the_stop_at_the_end_of_an_epoch_is_shown_as_well(tmp_path):
    schedule = cyclic_schedule(warmup=1, active=10, per="epoch")

    def without_save(state):
        action = schedule(state)
        return ProfilerAction.ACTIVE if action is ProfilerAction.ACTIVE_AND_SAVE else action

    source, handler = TorchProfiler(str(tmp_path / "torch")), JSONTraceHandler(str(tmp_path / "traces"))
    record(source, handler, schedule=without_save, batches=3, epochs=2)
    assert len(spans_of(tmp_path / "traces", "kinetoscope/start")) == 2
    assert len(spans_of(tmp_path / "traces", "kinetoscope/stop")) >= 1


def test_without_a_filename_the_trace_only_joins_the_cycle(tmp_path):
    handler = record(TorchProfiler(str(tmp_path), filename=None))
    assert steps(handler.cycles[0][0])
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


def test_gzip_is_added_to_the_name_once(tmp_path):
    for number, name in enumerate(("a{rank}.json", "a{rank}.json.gz")):
        folder = tmp_path / str(number)
        record(TorchProfiler(str(folder), filename=name, use_gzip=True), JSONTraceHandler(str(tmp_path / f"t{number}")))
        assert b"traceEvents" in gzip.decompress((folder / "a0.json.gz").read_bytes())


def test_a_run_that_ends_in_the_middle_of_a_window_keeps_torchs_operators(tmp_path):
    handler = record(TorchProfiler(str(tmp_path)), schedule=lambda state: ProfilerAction.ACTIVE, batches=3)
    assert any(event["name"] == "aten::mm" for event in handler.cycles[0][0]["traceEvents"])


def test_active_period_ended_by_the_epoch_is_saved(tmp_path):
    def schedule(state):  # does not know the epoch's length, as with a loader without one
        return ProfilerAction.ACTIVE if state.timestamp.batch_in_epoch else ProfilerAction.SKIP

    handler = record(TorchProfiler(str(tmp_path)), schedule=schedule, batches=3, epochs=2)
    assert [len(files) for files in handler.cycles] == [1, 1]


@pytest.mark.parametrize("keep", [0, 2])
def test_a_file_that_is_not_kept_is_deleted_only_when_every_handler_has_seen_it(tmp_path, keep):
    source = TorchProfiler(str(tmp_path), num_traces_to_keep=keep)
    handler = record(source, schedule=cyclic_schedule(warmup=0, active=1, repeat=0), batches=4)
    assert [len(files) for files in handler.cycles] == [1, 1, 1, 1]
    assert len(list(tmp_path.glob("*.json"))) == keep


def test_the_oldest_files_go_first(tmp_path):
    source = TorchProfiler(str(tmp_path), num_traces_to_keep=1)
    record(source, schedule=cyclic_schedule(warmup=0, active=1, repeat=0), batches=4)
    assert [path.name for path in tmp_path.glob("*.json")] == ["rank0.4.pt.trace.json"]
    assert [[path.name for path in paths] for _, paths in source.saved_traces] == [["rank0.4.pt.trace.json"]]


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "old.json").touch()
    with pytest.raises(FolderNotEmptyError, match="overwrite=True"):
        record(TorchProfiler(str(tmp_path)))


def test_a_memory_timeline_without_its_options_is_refused_naming_what_is_missing():
    with pytest.raises(SettingsError, match="record_shapes=True, with_stack=True"):
        TorchProfiler(memory_filename="rank{rank}.html")


def test_an_unknown_variable_is_refused():
    with pytest.raises(FileNameError, match="stpe"):
        TorchProfiler(filename="{stpe}.json")


def test_another_torch_profiler_around_the_run_is_a_clear_error_at_its_start(tmp_path):
    source = TorchProfiler(str(tmp_path))
    with torch.profiler.profile(), pytest.raises(ProfilerStateError, match="Another torch profiler is running"):
        Profiler(lambda state: ProfilerAction.ACTIVE, Files(), sources=[source]).start()


def test_torch_records_no_operator_of_an_evaluation_between_batches(tmp_path):
    handler = Files()
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[TorchProfiler(str(tmp_path))]) as profiler:
        for _ in range(2):
            for _ in profiler.batches(range(2)):
                torch.ones(8, 8) @ torch.ones(8, 8)
            with profiler.eval():
                for _ in profiler.batches(range(3)):
                    torch.sigmoid(torch.ones(8))
    (files,) = handler.cycles
    names = [event["name"] for event in files[0]["traceEvents"]]
    assert names.count("aten::mm") == 4
    assert "aten::sigmoid" not in names


@pytest.mark.parametrize(("broken", "writes_file"), [("torch_traces", True), ("traces", True), ("traces", False)])
def test_a_folder_that_cannot_be_written_for_one_cycle_loses_no_operator(tmp_path, writes_file, broken):
    source = TorchProfiler(f"{tmp_path}/torch_traces", "rank{rank}.{batch}.json" if writes_file else None)
    handler = JSONTraceHandler(f"{tmp_path}/traces", merged_trace_filename=None)
    folder, aside = tmp_path / broken, tmp_path / "aside"
    with Profiler(cyclic_schedule(warmup=1, active=1, repeat=0), handler, sources=[source]) as profiler:
        for batch in profiler.batches(range(6)):
            if batch == 2:
                assert profiler.lifecycle.drain(60)
                folder.rename(aside)
                folder.write_text("")
            torch.ones(8, 8) @ torch.ones(8, 8)
            if batch == 4:
                assert profiler.lifecycle.drain(60)
                folder.unlink()
                aside.rename(folder)
    paths = [*tmp_path.glob("traces/*.json"), *tmp_path.glob("torch_traces/*.json")]
    assert len(paths) == 3 * (1 + writes_file)
    assert all("aten::mm" in path.read_text() for path in paths)
    assert not (tmp_path / "live").exists()


def test_an_export_that_failed_keeps_no_results_of_kineto_alive(tmp_path, caplog):
    source = TorchProfiler(f"{tmp_path}/torch_traces")
    alive = weakref.WeakSet()
    handle_results = source.process_results

    def note(results):
        alive.add(results)
        handle_results(results)
        raise RuntimeError("a bug behind the export")

    source.process_results = note
    with Profiler(cyclic_schedule(warmup=1, active=1, repeat=0), Files(), sources=[source]) as profiler:
        for _ in profiler.batches(range(6)):
            torch.ones(8, 8) @ torch.ones(8, 8)
        assert profiler.lifecycle.drain(60)
        gc.collect()
        assert "a bug behind the export" in caplog.text
        assert len(alive) == 0


def test_ctrl_c_while_kineto_stops_loses_no_operator(tmp_path):
    """At every fifth place at which Python may raise it."""
    for place in range(1, 10_000, 5):
        presses, handler = InjectedSignals(signal.SIGINT, place, TorchProfiler._advance), Files()
        source = TorchProfiler(str(tmp_path / str(place)))
        with pytest.raises(KeyboardInterrupt), Profiler(ALWAYS_TWO, handler, sources=[source]) as profiler:
            for number in profiler.batches(range(3)):
                torch.ones(8, 8) @ torch.ones(8, 8)
                if number == 1:
                    presses.start()
            presses.stop()
            raise KeyboardInterrupt
        presses.stop()
        assert [steps(trace) for (trace,) in handler.cycles] == [["ProfilerStep#0", "ProfilerStep#1"]], place
        if presses.num_places < place:
            break
    assert place > 50
