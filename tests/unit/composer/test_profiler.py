"""The Composer face without Composer: any engine may call it. (`tests/compat/composer` uses the real one.)"""

import gc
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import kinetoscope
from kinetoscope import Event, State
from kinetoscope.composer import (
    JSONTraceHandler,
    Profiler,
    ProfilerAction,
    SystemProfiler,
    TorchProfiler,
    TraceHandler,
    cyclic_schedule,
)
from kinetoscope.errors import FolderNotEmptyError, ProfilerStateError
from kinetoscope.recording.markers.marker import MAX_CACHED_MARKERS
from kinetoscope.testing import MemoryTraceHandler
from support.composer_run.traces import read_events, spans_of
from support.fork_server import run_with_torch

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="TorchProfiler needs torch")
NO_TORCH = {"torch_prof_profile_memory": False, "torch_prof_with_flops": False}


@pytest.fixture(autouse=True)
def inside_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Engine:
    """Calls callbacks and markers as Composer's engine does, for a run of ``num_batches``."""

    def __init__(self, profiler, logger=None, run_name="run"):
        self.profiler, self.logger = profiler, logger
        self.state = State(run_name=run_name, dataloader_len=None)
        profiler.bind_to_state(self.state)
        self.run(Event.INIT)

    def run(self, *events):
        for event in events:
            for callback in self.state.callbacks:
                name = f"callback/{type(callback).__name__}/event/{event.value}"
                with self.profiler.marker(name, categories=[event.value, type(callback).__name__]):
                    callback.run_event(event, self.state, self.logger)

    def fit(self, num_batches):
        self.run(Event.FIT_START, Event.EPOCH_START)
        for _ in range(num_batches):
            batch = self.profiler.marker("event/batch", actions=[ProfilerAction.ACTIVE, ProfilerAction.WARMUP])
            self.run(Event.BATCH_START)
            batch.start()
            self.run(Event.BEFORE_FORWARD, Event.AFTER_FORWARD, Event.BEFORE_BACKWARD, Event.AFTER_BACKWARD)
            batch.finish()
            self.state.timestamp = self.state.timestamp.to_next_batch()
            self.run(Event.BATCH_END, Event.BATCH_CHECKPOINT)
        self.state.timestamp = self.state.timestamp.to_next_epoch()
        self.run(Event.EPOCH_END, Event.EPOCH_CHECKPOINT, Event.FIT_END)

    def close(self):
        for callback in self.state.callbacks:
            callback.close(self.state, self.logger)
        for callback in self.state.callbacks:
            callback.post_close()


def only_markers(schedule, handlers, **options):
    return Profiler(schedule, handlers, **{"sys_prof_cpu": False, "strict": True} | NO_TORCH | options)


def test_redact_is_set_before_the_trainer_and_holds_for_all_that_is_written(tmp_path):
    handlers, operators = [JSONTraceHandler()], {"torch_prof_profile_memory": True, "torch_prof_with_flops": True}
    profiler = only_markers(cyclic_schedule(warmup=1, active=2), handlers, **operators)
    profiler.redact = lambda text: text.replace("secret", "###")
    engine = Engine(profiler, run_name="a secret run")
    with profiler.marker("secret outer"):
        engine.fit(5)
    engine.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"ep0-ba3-rank0.json", "merged_trace.json", "rank0.3.pt.trace.json"}
    assert [path for path in files if b"secret" in path.read_bytes()] == []
    (run,) = {event["args"]["kinetoscope"]["run_name"] for event in _headers(tmp_path / "a secret run")}
    assert run == "a ### run"
    with pytest.raises(ProfilerStateError, match="redact is set too late"):
        profiler.redact = None


def _headers(run):
    events = json.loads((run / "traces" / "ep0-ba3-rank0.json").read_text())
    return [event for event in events if event["name"] == "kinetoscope_header"]


def test_a_window_is_saved_as_a_bare_list_of_pairs():
    engine = Engine(only_markers(cyclic_schedule(warmup=1, active=2), [JSONTraceHandler()]))
    engine.fit(5)
    engine.close()
    for path in ("run/traces/ep0-ba3-rank0.json", "run/traces/merged_trace.json"):
        events = read_events(path)
        assert events[0]["args"]["baseTimeNanoseconds"] > 10**18
        assert [span["args"]["batch"] for span in spans_of(events)["event/batch"]] == [0, 1, 2]
        assert not [event for event in events if event["ph"] == "X"]


class FormattingLogger:
    """Uploads files, and fills in variables in both of their names, as the loggers of Composer's Trainer do."""

    def __init__(self):
        self.files = {}

    def has_file_upload_destination(self):
        return True

    def upload_file(self, *, remote_file_name, file_path, overwrite):
        self.files[remote_file_name.format(rank=0)] = Path(file_path.format(rank=0)).read_bytes()


def test_files_with_braces_in_names_reach_the_store_under_these_names(tmp_path, monkeypatch):
    (tmp_path / "{rank} of {mine}").mkdir()
    monkeypatch.chdir(tmp_path / "{rank} of {mine}")
    logger = FormattingLogger()
    handler = JSONTraceHandler(remote_file_name="{{kept}}/{batch}.json", merged_trace_filename=None)
    engine = Engine(only_markers(cyclic_schedule(warmup=0, active=2), [handler]), logger)
    engine.fit(2)
    engine.close()
    assert logger.files == {"{kept}/2.json": Path("run/traces/ep0-ba2-rank0.json").read_bytes()}


def test_an_engine_that_has_no_markers_of_its_own_for_microbatches_has_one_of_them():
    engine = Engine(only_markers(cyclic_schedule(warmup=0, active=1), [JSONTraceHandler()]))
    engine.fit(1)
    engine.close()
    spans = spans_of(read_events("run/traces/ep0-ba1-rank0.json"))
    for event in ("before_forward", "after_backward"):
        assert [span["args"]["microbatch"] for span in spans[f"callback/Profiler/event/{event}"]] == [0], event


def test_trace_of_an_active_period_ended_by_the_epoch_is_saved():
    def schedule(state):  # does not know an epoch's end
        return [ProfilerAction.WARMUP, ProfilerAction.ACTIVE][min(state.timestamp.batch_in_epoch, 1)]

    engine = Engine(only_markers(schedule, [JSONTraceHandler()]))
    engine.fit(3)
    assert Path("run/traces/ep1-ba3-rank0.json").exists()
    engine.close()


def test_a_marker_may_be_used_once_the_profiler_is_bound():
    received = []

    class Listener(TraceHandler):
        def process_duration_event(self, name, categories, is_start, timestamp, wall_clock_time_ns):
            received.append((name, is_start))

    profiler = only_markers(lambda state: ProfilerAction.ACTIVE, Listener())
    profiler.bind_to_state(State())
    with profiler.marker("mine"):
        pass
    assert received == [("mine", True), ("mine", False)]
    profiler.close()


def test_many_new_names_of_a_callback_are_not_all_kept():
    profiler = only_markers(lambda state: ProfilerAction.SKIP, MemoryTraceHandler())
    profiler.bind_to_state(State())
    for number in range(3 * MAX_CACHED_MARKERS):
        with profiler.marker(f"a callback's step {number}"):
            pass
    gc.collect()
    markers = [
        marker
        for marker in gc.get_objects()
        if issubclass(type(marker), kinetoscope.Marker) and marker.name.startswith("a callback's step ")
    ]
    assert len(markers) <= MAX_CACHED_MARKERS
    profiler.close()


def test_handlers_get_arguments_by_name_and_from_the_bound_state():
    received = []

    class Listener(TraceHandler):
        def process_instant_event(self, *, wall_clock_time_ns, timestamp, categories, name):
            received.append((name, categories, int(timestamp.batch)))

    class Marks(TraceHandler):
        def before_forward(self, state, logger):
            state.profiler.marker("here", categories=["mine"]).instant()

    engine = Engine(only_markers(lambda state: ProfilerAction.ACTIVE, [Listener(), Marks()]))
    engine.fit(2)
    engine.close()
    assert received == [("here", ("mine",), 0), ("here", ("mine",), 1)]


def test_a_later_marker_of_the_same_name_keeps_the_first_settings_and_says_so(caplog):
    profiler = only_markers(lambda state: ProfilerAction.ACTIVE, [])
    first = profiler.marker("mine", actions=[ProfilerAction.ACTIVE], categories=["a"])
    assert profiler.marker("mine", categories=("b",)) is first
    assert profiler.marker("mine") is first
    assert first.categories == ("a",)
    assert len(caplog.records) == 1


def test_a_profiler_has_no_state_before_it_is_bound():
    profiler = only_markers(cyclic_schedule(), [])
    assert profiler.state is None
    state = State()
    profiler.bind_to_state(state)
    assert profiler.state is state
    profiler.close()


def test_an_unbound_profiler_may_be_in_a_list_of_callbacks_and_does_nothing():
    unbound, engine = Profiler(cyclic_schedule(), [MemoryTraceHandler()]), Engine(only_markers(cyclic_schedule(), []))
    engine.state.callbacks.append(unbound)
    unbound.run_event(Event.INIT, engine.state, None)
    engine.fit(2)
    assert unbound.get_action() is ProfilerAction.SKIP
    assert unbound.marker("mine").name == "mine"
    engine.close()
    unbound.close()
    with pytest.raises(RuntimeError, match="bind_to_state"):
        unbound.start()


def test_nothing_is_saved_before_a_run_has_begun():
    assert JSONTraceHandler().saved_traces == []
    assert TorchProfiler().saved_traces == []


def test_the_torch_profiler_has_its_settings_as_attributes():
    profiler = TorchProfiler(filename="{rank}.json", remote_file_name=None, memory_remote_file_name=None)
    assert (profiler.filename, profiler.remote_file_name) == ("{rank}.json", None)
    assert (profiler.memory_filename, profiler.memory_remote_file_name) == (None, None)
    options = {"record_shapes": True, "with_stack": True}
    names = {"memory_filename": "{batch}.html", "memory_remote_file_name": "gs://bucket/memory/{batch}.html"}
    packed = TorchProfiler(remote_file_name="s3://bucket/a/{batch}.json", use_gzip=True, **names, **options)
    assert packed.filename == "rank{rank}.{batch}.pt.trace.json.gz"
    assert packed.remote_file_name == "a/{batch}.json.gz"
    assert (packed.memory_filename, packed.memory_remote_file_name) == ("{batch}.html", "memory/{batch}.html")


def test_the_system_profiler_has_its_settings_as_attributes():
    profiler = SystemProfiler(profile_cpu=False, profile_disk=True, stats_thread_interval_seconds=0.25)
    assert (profiler.profile_cpu, profiler.profile_memory) == (False, False)
    assert (profiler.profile_disk, profiler.profile_net) == (True, False)
    assert profiler.stats_thread_interval_seconds == 0.25


def test_a_marker_decorates_a_function_that_is_passed_by_name():
    marker = only_markers(cyclic_schedule(), []).marker("mine")
    assert marker(func=len)("abc") == 3
    assert marker(func=None) is marker


def test_the_callbacks_of_a_profiler_follow_its_options():
    kinds = lambda profiler: [type(callback).__name__ for callback in profiler._callbacks]  # noqa: E731
    schedule = cyclic_schedule()
    assert kinds(Profiler(schedule, [])) == ["SystemProfiler", "TorchProfiler"]
    assert kinds(Profiler(schedule, [], sys_prof_cpu=False)) == ["TorchProfiler"]
    assert kinds(Profiler(schedule, [], **NO_TORCH)) == ["SystemProfiler"]
    assert kinds(Profiler(schedule, [], sys_prof_cpu=False, torch_prof_record_shapes=True)) == ["TorchProfiler"]


def test_a_memory_file_without_its_three_options_is_refused():
    with pytest.raises(ValueError, match="torch_prof_record_shapes=True, torch_prof_with_stack=True"):
        Profiler(cyclic_schedule(), [], torch_prof_memory_filename="memory.html")


def test_the_batch_of_resumption_comes_from_after_load():
    profiler = only_markers(cyclic_schedule(skip_first=1, warmup=1, active=1), [])
    engine = Engine(profiler)
    engine.state.timestamp = engine.state.timestamp.to_next_batch().to_next_batch()
    engine.run(Event.BEFORE_LOAD, Event.AFTER_LOAD)
    assert profiler.resumption_batch_idx == 2
    assert profiler.schedule(engine.state) is ProfilerAction.SKIP
    engine.state.timestamp = engine.state.timestamp.to_next_batch()
    assert profiler.schedule(engine.state) is ProfilerAction.WARMUP
    engine.close()


def test_a_schedule_works_with_any_profiler_that_knows_its_batch_of_resumption():
    state = State(profiler=SimpleNamespace(resumption_batch_idx=2))
    assert cyclic_schedule(warmup=1, active=1)(state) is ProfilerAction.SKIP


def test_a_closed_profiler_serves_another_engine():
    handler = JSONTraceHandler(overwrite=True)
    profiler = only_markers(cyclic_schedule(warmup=0, active=2), [handler])
    for num_batches in (1, 2):
        engine = Engine(profiler)
        engine.fit(num_batches)
        engine.close()
        engine.close()
        assert len(spans_of(read_events())["event/batch"]) == num_batches
    assert not Path("run/live").exists()


def test_a_trainer_that_was_never_closed_is_closed_and_saved_when_another_one_starts(caplog):
    handler = MemoryTraceHandler()
    first = Engine(only_markers(cyclic_schedule(warmup=0, active=4), handler))
    first.run(Event.FIT_START, Event.EPOCH_START, Event.BATCH_START)
    with first.state.profiler.marker("forward"):
        pass
    second = Engine(only_markers(cyclic_schedule(), []))
    assert [name for name, _, _ in handler.spans() if name == "forward"] == ["forward"]
    assert "was not closed" in caplog.text
    second.close()


def test_profiler_bound_to_another_trainer_saves_the_open_run_and_records_the_new(caplog):
    profiler = only_markers(cyclic_schedule(warmup=0, active=4), [JSONTraceHandler()], sys_prof_cpu=True)
    first = Engine(profiler)
    first.run(Event.FIT_START, Event.EPOCH_START, Event.BATCH_START)
    with profiler.marker("forward"):
        pass
    second = Engine(profiler, run_name="second")
    assert "run 'run' was not closed" in caplog.text
    assert len(spans_of(read_events("run/traces/merged_trace.json"))["forward"]) == 1
    assert not Path("run/live").exists()
    second.fit(2)
    second.close()
    assert len(spans_of(read_events("second/traces/merged_trace.json"))["event/batch"]) == 2
    assert not Path("second/live").exists()


def test_trainer_that_lost_its_profiler_does_not_affect_the_new_trainers_run():
    profiler = only_markers(cyclic_schedule(warmup=0, active=4), [JSONTraceHandler()], sys_prof_cpu=True)
    first = Engine(profiler)
    second = Engine(profiler, run_name="second")
    second.run(Event.FIT_START, Event.EPOCH_START)
    first.run(Event.BATCH_START, Event.BATCH_END, Event.FIT_END)
    first.close()
    second.fit(2)
    second.close()
    spans = spans_of(read_events("second/traces/merged_trace.json"))
    assert len(spans["event/batch"]) == 2
    assert len(spans["callback/JSONTraceHandler/event/batch_start"]) == 2
    assert profiler.state is second.state


def test_a_source_outside_its_profiler_says_what_is_missing():
    with pytest.raises(RuntimeError, match=r"kinetoscope\.composer\.Profiler"):
        SystemProfiler().init(State(), None)


def test_the_merger_is_a_command(tmp_path):
    for rank in (0, 1):
        event = {"ph": "X", "name": "work", "ts": 1.7e15 + rank, "dur": 2, "pid": 0, "tid": 1}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps([event])[:-1] + ",")  # a comma, and no bracket
    command = "import runpy; runpy.run_module('kinetoscope.composer.json_trace_merger', run_name='__main__')"
    done = run_with_torch(command, "-o", "merged.json", "rank0.json", "rank1.json")
    assert done.returncode == 0, done.stderr
    assert {event["pid"] for event in read_events("merged.json") if event["name"] == "work"} == {0, 1}
    done = run_with_torch(command, "-o", "merged.json", "missing.json")
    assert done.returncode == 1
    assert "missing.json" in done.stderr


def test_a_trace_of_the_face_loads_as_one_of_its_rank():
    engine = Engine(only_markers(cyclic_schedule(warmup=0, active=2), [JSONTraceHandler()]))
    engine.fit(3)
    engine.close()
    trace = kinetoscope.load("run/traces/ep0-ba2-rank0.json")
    batches = trace.spans.collect().filter(trace.spans.collect()["name"] == "event/batch")
    assert batches["batch"].to_list() == [0, 1]
    assert trace.rank == 0
    assert trace.header["kinetoscope"]["cycle"] == 0
    assert kinetoscope.load("run/traces/merged_trace.json").is_merged


def test_failed_setup_is_reported_by_its_own_error_only(caplog):
    Path("run/traces").mkdir(parents=True)
    Path("run/traces/old.json").write_text("[]")
    profiler = only_markers(cyclic_schedule(warmup=0, active=4), [JSONTraceHandler()])
    with pytest.raises(FolderNotEmptyError):
        Engine(profiler)
    Engine.close(SimpleNamespace(state=SimpleNamespace(callbacks=[profiler, *profiler.trace_handlers]), logger=None))
    assert caplog.messages == []
