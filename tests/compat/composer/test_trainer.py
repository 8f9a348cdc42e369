"""Our profiler in Composer's real Trainer: it trains, evaluates, resumes, fails and ends, and the traces show that."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from composer import Callback, Trainer
from composer.loggers import LoggerDestination
from composer.utils import StringEnum

from kinetoscope import composer as face
from kinetoscope.composer import JSONTraceHandler, Profiler, ProfilerAction, TraceHandler, cyclic_schedule
from kinetoscope.composer.json_trace_merger import merge_traces
from support.composer_run.traces import read_events, spans_of
from support.composer_run.trainer import BATCH_SIZE, make_batches, make_model, make_trainer
from support.polling import wait_for
from support.trace_processor.trace_processor import load

NO_TORCH = {"torch_prof_profile_memory": False, "torch_prof_with_flops": False}
ALWAYS = cyclic_schedule(warmup=0, active=1000, repeat=0)


def profile_only_markers(schedule=ALWAYS, handlers=None, **options):
    handlers = [JSONTraceHandler()] if handlers is None else handlers
    return Profiler(schedule, handlers, **{"sys_prof_cpu": False, "strict": True} | NO_TORCH | options)


def train(profiler, **settings):
    trainer = make_trainer(profiler, **settings)
    try:
        trainer.fit()
    finally:
        trainer.close()
    return trainer


def kinetoscope_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kinetoscope")]


# -- training and evaluating ------------------------------------------------------------------------------------


def test_every_span_of_the_engine_is_balanced_over_several_epochs():
    train(profile_only_markers(), num_batches=4, duration="3ep")
    spans = spans_of(read_events())
    for name in ("batch", "train_batch", "forward", "loss", "backward", "dataloader"):
        assert len(spans[f"event/{name}"]) == 12, name
    assert len(spans["event/epoch"]) == 3
    assert len(spans["event/fit"]) == 3, "each window shows its fit"
    places = [(span["args"]["epoch"], span["args"]["batch"]) for span in spans["event/batch"]]
    assert places == [(batch // 4, batch) for batch in range(12)]


def test_a_trace_of_each_window_is_named_by_completed_batches():
    train(profile_only_markers(cyclic_schedule(skip_first=1, warmup=1, active=2, repeat=2)), num_batches=8)
    assert sorted(path.name for path in Path("run/traces").glob("ep*")) == ["ep0-ba4-rank0.json", "ep0-ba7-rank0.json"]


def test_the_last_batch_of_a_window_is_recorded_with_all_its_spans():
    train(profile_only_markers(cyclic_schedule(warmup=0, active=3)), num_batches=5)
    spans = spans_of(read_events())
    assert [span["args"]["batch"] for span in spans["event/forward"]] == [0, 1, 2]
    assert [span["args"]["batch"] for span in spans["event/batch"]] == [0, 1, 2]


def test_skipped_batches_leave_nothing():
    received = []

    class Listener(face.TraceHandler):
        def process_duration_event(self, name, categories, is_start, timestamp, wall_clock_time_ns):
            received.append(name)

    train(profile_only_markers(lambda state: ProfilerAction.SKIP, [Listener(), JSONTraceHandler()]), num_batches=24)
    assert received == []
    assert not list(Path("run/traces").glob("*.json"))


def test_an_evaluation_inside_a_window_is_recorded():
    train(profile_only_markers(), num_batches=4, eval_dataloader=make_batches(3), eval_interval="2ba")
    spans = spans_of(read_events())
    assert len(spans["event/eval"]) == 1  # the one after batch 2; after batch 4 the epoch and the window are over
    assert len(spans["event/eval_batch"]) == 3


def test_each_microbatch_is_numbered():
    train(profile_only_markers(), num_batches=2, device_train_microbatch_size=BATCH_SIZE // 4)
    spans = spans_of(read_events())
    for name in ("event/forward", "event/loss", "event/backward", "callback/Profiler/event/before_forward"):
        assert [(span["args"]["batch"], span["args"]["microbatch"]) for span in spans[name]] == [
            (batch, microbatch) for batch in (0, 1) for microbatch in range(4)
        ], name
    assert "microbatch" not in spans["event/batch"][0]["args"]


def test_max_duration_in_mid_window_keeps_the_window():
    train(profile_only_markers(cyclic_schedule(warmup=1, active=100)), num_batches=8, duration="5ba")
    assert len(spans_of(read_events("run/traces/ep0-ba5-rank0.json"))["event/batch"]) == 5


def test_traces_are_there_when_fit_returns_and_fit_may_be_called_again():
    trainer = make_trainer(profile_only_markers(cyclic_schedule(warmup=0, active=100)), num_batches=4, duration="2ba")
    trainer.fit()
    assert len(spans_of(read_events())["event/batch"]) == 2
    trainer.fit(duration="2ba")
    assert len(spans_of(read_events())["event/batch"]) == 4
    trainer.close()
    assert len(spans_of(read_events())["event/batch"]) == 4


# -- other ways to end -------------------------------------------------------------------------------------------


class FailsInBatch(Callback):
    def __init__(self, number):
        self.number = number

    def before_backward(self, state, logger):
        if state.timestamp.batch == self.number:
            raise ArithmeticError("the user's own mistake")


def test_training_exception_is_the_users_own_and_the_window_is_saved():
    trainer = make_trainer(profile_only_markers(cyclic_schedule(warmup=0, active=100)), callbacks=[FailsInBatch(3)])
    with pytest.raises(ArithmeticError, match="own mistake"):
        trainer.fit()
    trainer.close()
    spans = spans_of(read_events("run/traces/ep0-ba3-rank0.json"))
    assert [span["args"]["batch"] for span in spans["event/batch"]] == [0, 1, 2, 3]
    assert spans["event/batch"][-1]["args"]["cut"]
    assert kinetoscope_threads() == []


def test_an_interrupted_trainer_can_fit_again():
    failure = FailsInBatch(2)
    trainer = make_trainer(profile_only_markers(cyclic_schedule(warmup=0, active=100)), callbacks=[failure])
    with pytest.raises(ArithmeticError):
        trainer.fit()
    failure.number = None
    trainer.fit()
    trainer.close()
    spans = spans_of(read_events())["event/batch"]
    assert [span["args"]["batch"] for span in spans] == [0, 1, 2, 2, 3, 4, 5, 6, 7]
    assert [span["args"]["batch"] for span in spans if "cut" in span["args"]] == [2]


class Watches(Callback):
    """Notes which callbacks are in the Trainer's list at some events."""

    def __init__(self):
        self.kinds = {}

    def run_event(self, event, state, logger):
        kinds = [type(callback).__name__ for callback in state.callbacks]
        self.kinds.setdefault(event.value, []).append(kinds[kinds.index("Profiler") :])


def test_the_trainers_list_of_callbacks_is_the_same_at_every_event():
    class Mine(face.TraceHandler):
        pass

    profiler, watch = Profiler(ALWAYS, [Mine(), JSONTraceHandler()], strict=True), Watches()
    trainer = train(profiler, num_batches=3, duration="2ep", callbacks=[watch], eval_dataloader=make_batches(2))
    whole = ["Profiler", "SystemProfiler", "TorchProfiler", "Mine", "JSONTraceHandler"]
    assert {"before_dataloader", "after_forward", "batch_end", "eval_start", "fit_end"} <= watch.kinds.keys()
    for event, seen in watch.kinds.items():
        assert seen == [whole] * len(seen), event
    assert [type(callback).__name__ for callback in trainer.state.callbacks][-5:] == whole


class InForward(Callback):
    """Does something with the state in the forward pass of one batch."""

    def __init__(self, do, number=1):
        self.do, self.number = do, number
        self.result = None

    def after_forward(self, state, logger):
        if state.timestamp.batch == self.number:
            self.result = self.do(state)


def test_state_saved_in_mid_batch_names_every_kinetoscope_callback():
    callback = InForward(lambda state: list(state.state_dict()["callbacks"]))
    train(Profiler(ALWAYS, [JSONTraceHandler()], strict=True), num_batches=3, callbacks=[callback])
    names = callback.result
    assert names[names.index("Profiler") :] == ["Profiler", "SystemProfiler", "TorchProfiler", "JSONTraceHandler"]


def test_a_callback_may_change_the_list_in_mid_batch_and_the_change_stays():
    class Late(Callback):
        batches = 0

        def batch_end(self, state, logger):
            self.batches += 1

    late = Late()
    callback = InForward(lambda state: state.callbacks.insert(0, late))
    trainer = train(Profiler(ALWAYS, [JSONTraceHandler()], strict=True), num_batches=4, callbacks=[callback])
    assert trainer.state.callbacks[0] is late
    assert late.batches == 3
    assert len(spans_of(read_events())["event/batch"]) == 4


def test_profiler_removed_from_the_callbacks_during_a_batch_saves_and_warns(caplog):
    callback = InForward(lambda state: state.callbacks.remove(state.profiler))
    train(Profiler(ALWAYS, [JSONTraceHandler()]), num_batches=4, callbacks=[callback])
    assert len(spans_of(read_events())["event/batch"]) >= 2
    assert any(
        "removed from the Trainer's callbacks" in record.getMessage()
        for record in caplog.records
        if record.name == "kinetoscope"
    )
    assert kinetoscope_threads() == []


def test_run_that_failed_in_a_batch_closes_every_kinetoscope_callback():
    trainer = make_trainer(Profiler(ALWAYS, [JSONTraceHandler()]), callbacks=[FailsInBatch(3)])
    with pytest.raises(ArithmeticError):
        trainer.fit()
    trainer.close()
    kinds = [type(callback).__name__ for callback in trainer.state.callbacks]
    assert kinds[kinds.index("Profiler") :] == ["Profiler", "SystemProfiler", "TorchProfiler", "JSONTraceHandler"]
    events = read_events()
    assert spans_of(events)["event/batch"][-1]["args"]["cut"]
    assert "aten::linear" in {event["name"] for event in events}
    assert kinetoscope_threads() == []


@pytest.mark.reports_errors
def test_raising_handler_is_disabled_and_training_continues(caplog):
    class Broken(face.TraceHandler):
        def batch_end(self, state, logger):
            raise OSError("the handler's own mistake")

    profiler = profile_only_markers(handlers=[Broken(), JSONTraceHandler()], strict=False)
    trainer = train(profiler, num_batches=4)
    assert int(trainer.state.timestamp.batch) == 4
    assert sum("handler's own mistake" in record.getMessage() for record in caplog.records) == 1
    assert len(spans_of(read_events())["event/batch"]) == 4


def test_a_run_that_is_forgotten_is_saved_when_python_ends():
    script = """
import sys; sys.path[:0] = {paths!r}
from support.composer_run.trainer import make_trainer
from kinetoscope.composer import *
profiler = Profiler(cyclic_schedule(warmup=0, active=100), [JSONTraceHandler()])
trainer = make_trainer(profiler)
batches = iter(trainer.state.train_dataloader)
class Stop(Exception): pass
from composer import Callback
class StopsInBatch(Callback):
    def batch_start(self, state, logger):
        if state.timestamp.batch == 2:
            raise SystemExit(3)
trainer.state.callbacks.append(StopsInBatch())
trainer.fit()
"""
    done = run_script(script)
    assert done.returncode == 3, done.stderr
    assert len(spans_of(read_events())["event/batch"]) == 2
    assert "Error" not in done.stderr, done.stderr


def test_the_records_of_a_killed_trainer_are_recovered():
    script = """
import os, signal, sys; sys.path[:0] = {paths!r}
from composer import Callback
from support.composer_run.trainer import make_trainer
from kinetoscope.composer import *
class IsKilled(Callback):
    def batch_start(self, state, logger):
        if state.timestamp.batch == 4:
            os.kill(os.getpid(), signal.SIGKILL)
make_trainer(Profiler(cyclic_schedule(warmup=0, active=100), [JSONTraceHandler()]), callbacks=[IsKilled()]).fit()
"""
    assert run_script(script).returncode == -9
    recovered = subprocess.run([sys.executable, "-m", "kinetoscope", "recover", "run"], capture_output=True, text=True)
    assert recovered.returncode == 0, recovered.stderr
    spans = spans_of(read_events("run/traces/ep0-ba4-rank0.json"))
    assert [span["args"]["batch"] for span in spans["event/forward"]] == [0, 1, 2, 3]


def run_script(script, *launcher, timeout=150):
    tests = Path(__file__).parents[2]
    Path("script.py").write_text(script.format(paths=[str(tests), str(tests / "support" / "composer_stubs")]))
    return subprocess.run(
        [sys.executable, "-W", "ignore", *launcher, "script.py"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


# -- resuming ---------------------------------------------------------------------------------------------------


def test_a_resumed_run_shifts_the_window_in_that_epoch_only():
    settings = {"num_batches": 8, "save_folder": "checkpoints", "save_filename": "{batch}.pt", "save_interval": "3ba"}
    train(profile_only_markers(handlers=[]), duration="3ba", **settings)
    schedule = cyclic_schedule(skip_first=1, warmup=1, active=2)
    train(profile_only_markers(schedule), num_batches=8, duration="2ep", load_path="checkpoints/3.pt")
    spans = spans_of(read_events())
    assert [span["args"]["batch"] for span in spans["event/batch"]] == [4, 5, 6, 9, 10, 11]


def test_the_profilers_batch_of_resumption_is_the_checkpoints():
    train(profile_only_markers(handlers=[]), duration="3ba", save_folder="checkpoints", save_filename="{batch}.pt")
    profiler = profile_only_markers(handlers=[])
    trainer = make_trainer(profiler, load_path="checkpoints/3.pt")
    trainer.close()
    assert profiler.resumption_batch_idx == 3


# -- torch operators and the machine ----------------------------------------------------------------------------


class UntilRead(TraceHandler):
    """Delay the end of a recorded batch until CPU use was sampled, which needs two points in time."""

    def __init__(self):
        self.counters = set()

    def process_counter_event(self, name, categories, timestamp, wall_clock_time_ns, values):
        self.counters.add(name)

    def batch_end(self, state, logger):
        if state.profiler.get_action() is ProfilerAction.ACTIVE:
            wait_for(lambda: "cpu" in self.counters)


@pytest.fixture
def complete_run():
    profiler = Profiler(
        cyclic_schedule(skip_first=1, warmup=1, active=3),
        [JSONTraceHandler(), UntilRead()],
        sys_prof_memory=True,
        sys_prof_disk=True,
        sys_prof_net=True,
        sys_prof_stats_thread_interval_seconds=0.01,
        strict=True,
    )
    train(profiler, num_batches=8)
    return profiler


def test_markers_operators_and_counters_are_within_five_microseconds_of_each_other(complete_run):
    events = read_events()
    spans = spans_of(events)
    forwards = [(span["ts"], span["end"]) for span in spans["event/forward"]]
    linears = [event for event in events if event["name"] == "aten::linear" and event["ph"] == "X"]
    recorded = [event for event in linears if event["ts"] > forwards[0][0] - 5]
    assert len(recorded) == 2 * 3  # two layers, three batches
    for event in recorded:
        assert any(begin - 5 <= event["ts"] and event["ts"] + event["dur"] <= end + 5 for begin, end in forwards), event
    window = (
        min(span["ts"] for span in spans["event/batch"]) - 1e6,
        max(span["end"] for span in spans["event/batch"]) + 1e6,
    )
    counters = [event for event in events if event["ph"] == "C"]
    assert counters
    assert all(window[0] < event["ts"] < window[1] for event in counters)


def test_perfetto_takes_the_merged_trace_without_an_error(complete_run):
    with load(Path("run/traces/merged_trace.json")) as trace:
        assert trace.errors() == {}
        rows = trace.query("select name, dur from slice where name in ('event/batch', 'aten::linear')")
        assert Counter(row["name"] for row in rows)["event/batch"] == 4
        assert all(row["dur"] > 0 for row in rows)
        series = {row["name"] for row in trace.query("select distinct name from counter_track")}
        assert any(name.startswith("cpu") for name in series)


def test_the_callbacks_come_in_composers_order():
    handler = JSONTraceHandler()
    profiler = Profiler(ALWAYS, [handler])
    trainer = make_trainer(profiler)
    kinds = [type(callback).__name__ for callback in trainer.state.callbacks]
    start = kinds.index("Profiler")
    assert kinds[start : start + 4] == ["Profiler", "SystemProfiler", "TorchProfiler", "JSONTraceHandler"]
    assert profiler._callbacks[-1] is trainer.state.callbacks[start + 2]
    assert all(isinstance(callback, Callback) for callback in trainer.state.callbacks)
    trainer.close()


def test_the_torch_profilers_schedule_answers_with_torchs_actions():
    profiler = Profiler(cyclic_schedule(skip_first=1, warmup=1, active=2), [])
    trainer = make_trainer(profiler)
    actions = []
    for _ in range(5):
        actions.append(profiler._callbacks[-1].profiler.schedule(0))
        trainer.state.timestamp = trainer.state.timestamp.to_next_batch()
    expected = [torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1, skip_first=1)(step) for step in range(5)]
    assert actions == expected
    trainer.close()


def test_the_memory_timeline_works_on_the_cpu():
    options = {"torch_prof_with_stack": True, "torch_prof_record_shapes": True, "strict": True}
    profiler = Profiler(
        cyclic_schedule(warmup=1, active=2), [], torch_prof_memory_filename="rank{rank}.{batch}.html", **options
    )
    train(profiler, num_batches=4)
    assert "<html" in Path("run/torch_traces/rank0.3.html").read_text()[:200].lower()


def test_a_memory_file_without_its_options_is_refused():
    with pytest.raises(ValueError, match="torch_prof_with_stack"):
        Profiler(ALWAYS, [], torch_prof_memory_filename="memory.html", torch_prof_record_shapes=True)


def test_the_operator_tables_are_logged_at_the_end(caplog):
    caplog.set_level("INFO", logger="kinetoscope.composer.torch_profiler")
    train(Profiler(cyclic_schedule(warmup=1, active=2), [], strict=True), num_batches=4)
    tables = [record.getMessage() for record in caplog.records if record.name == "kinetoscope.composer.torch_profiler"]
    assert len(tables) == 2
    assert all("ProfilerStep" in table or "aten::" in table for table in tables)


def test_the_state_of_the_torch_profiler_is_logged():
    logged = []

    class Logger(LoggerDestination):
        def log_traces(self, traces):
            logged.extend(traces.get(key) for key in traces if key == "profiler/state")

    train(Profiler(cyclic_schedule(warmup=1, active=1), [], strict=True), num_batches=3, loggers=[Logger()])
    assert logged == ["WARMUP", "RECORD_AND_SAVE", "NONE"]


def test_torch_and_markers_are_saved_together_at_the_end_of_mid_window():
    train(Profiler(cyclic_schedule(warmup=1, active=100), [JSONTraceHandler()], strict=True), duration="4ba")
    events = read_events("run/traces/ep0-ba4-rank0.json")
    assert len(spans_of(events)["event/batch"]) == 4
    assert sum(event["name"] == "aten::linear" for event in events) >= 2 * 3
    assert Path("run/torch_traces/rank0.4.pt.trace.json").exists()


# -- uploads ----------------------------------------------------------------------------------------------------


class KeepsFiles(LoggerDestination):
    def __init__(self):
        self.files = {}

    def can_upload_files(self):
        return True

    def upload_file(self, state, remote_file_name, file_path, *, overwrite):
        self.files[remote_file_name] = Path(file_path).read_bytes()


def test_finished_files_go_to_the_trainers_logger_under_their_remote_names():
    logger = KeepsFiles()
    handler = JSONTraceHandler(folder="here", remote_file_name="/there/{run_name}-{batch}.json", num_traces_to_keep=0)
    train(Profiler(cyclic_schedule(warmup=1, active=2), [handler], strict=True), num_batches=5, loggers=[logger])
    assert set(logger.files) == {
        "there/run-3.json",
        "run/traces/merged_trace.json",
        "run/torch_traces/rank0.3.pt.trace.json",
    }
    assert logger.files["run/traces/merged_trace.json"] == Path("here/merged_trace.json").read_bytes()
    assert not list(Path("here").glob("ep*"))


def test_the_trainer_learns_of_every_remote_name():
    handler = JSONTraceHandler(remote_file_name="s3://bucket/a/{batch}.json", merged_trace_remote_file_name=None)
    profiler = Profiler(ALWAYS, [handler], torch_prof_remote_file_name="gs://bucket/b/{rank}.{batch}.json")
    assert profiler.remote_filenames == [
        "gs://bucket/b/{rank}.{batch}.json",
        "{run_name}/torch_memory_traces/rank{rank}.{batch}.pt.memory_trace.html",
        "s3://bucket/a/{batch}.json",
    ]


@pytest.mark.reports_errors
def test_a_logger_that_cannot_upload_only_gives_a_warning(caplog):
    class Refuses(KeepsFiles):
        def upload_file(self, state, remote_file_name, file_path, *, overwrite):
            raise ConnectionError("no network")

    profiler = profile_only_markers(cyclic_schedule(warmup=0, active=2), strict=False)
    train(profiler, num_batches=4, loggers=[Refuses()])
    assert any("no network" in record.getMessage() for record in caplog.records)
    assert len(list(Path("run/traces").glob("ep*"))) == 1


# -- many ranks -------------------------------------------------------------------------------------------------


def test_two_ranks_are_two_processes_in_the_merged_trace_over_all_cycles():
    script = """
import sys; sys.path[:0] = {paths!r}
import torch
from composer.utils import dist
from support.composer_run.trainer import make_model, make_trainer, make_batches
from torch.utils.data import DataLoader
from kinetoscope.composer import *
data = make_batches(24).dataset
dist.initialize_dist("cpu")
batches = DataLoader(data, batch_size=8, sampler=dist.get_sampler(data))
profiler = Profiler(cyclic_schedule(warmup=1, active=2, repeat=2), [JSONTraceHandler()], strict=True)
trainer = make_trainer(profiler, train_dataloader=batches)
trainer.fit()
trainer.close()
"""
    done = run_script(script, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr
    events = read_events()
    spans = spans_of(events)
    per_rank = Counter(span["pid"] for span in spans["event/batch"])
    assert per_rank == {0: 6, 1: 6}
    operators = Counter(event["pid"] for event in events if event["name"] == "aten::linear" and event["ph"] == "X")
    assert operators[0] == operators[1] >= 2 * 4
    flows = Counter((event["ph"], event["id"]) for event in events if event["ph"] in "st")
    assert not flows or max(flows.values()) == 1
    with load(Path("run/traces/merged_trace.json")) as trace:
        assert trace.errors() == {}


# -- in Composer's place ----------------------------------------------------------------------------------------


def test_composers_own_schedule_and_handlers_work_with_our_profiler():
    from composer.profiler import TraceHandler
    from composer.profiler import cyclic_schedule as composers_schedule

    received = Counter()

    class Counts(TraceHandler):
        def process_duration_event(self, *, name, categories, timestamp, is_start, wall_clock_time_ns):
            received[name, is_start] += 1

    train(profile_only_markers(composers_schedule(warmup=1, active=2), [Counts()]), num_batches=5)
    assert received["event/batch", True] == received["event/batch", False] == 3


def test_script_for_composer_runs_with_kinetoscope_modules_instead():
    script = """
import sys; sys.path[:0] = {paths!r}
import importlib, composer, kinetoscope.composer
names = "json_trace_handler json_trace_merger marker profiler profiler_action profiler_schedule system_profiler " \\
        "torch_profiler trace_handler utils"
sys.modules["composer.profiler"] = composer.profiler = kinetoscope.composer
for name in names.split():
    sys.modules["composer.profiler." + name] = importlib.import_module("kinetoscope.composer." + name)

from composer.profiler import JSONTraceHandler, Profiler, cyclic_schedule
from composer.profiler.json_trace_merger import merge_traces
from composer.profiler.utils import export_memory_timeline_html
from support.composer_run.trainer import make_trainer
profiler = Profiler(schedule=cyclic_schedule(skip_first=0, wait=0, warmup=1, active=4, repeat=1),
                    trace_handlers=[JSONTraceHandler(folder="traces", overwrite=True)], torch_prof_overwrite=True)
trainer = make_trainer(profiler)
trainer.fit()
merge_traces("again.json", "traces/ep0-ba5-rank0.json")
"""
    done = run_script(script)
    assert done.returncode == 0, done.stderr
    assert len(spans_of(read_events("traces/merged_trace.json"))["event/batch"]) == 5
    assert len(spans_of(read_events("again.json"))["event/batch"]) == 5


def test_composers_own_merger_reads_our_traces_and_the_merged_one():
    from composer.profiler.json_trace_merger import merge_traces as composers_merge

    train(profile_only_markers(cyclic_schedule(warmup=0, active=2)), num_batches=3)
    for path in ("run/traces/ep0-ba2-rank0.json", "run/traces/merged_trace.json"):
        composers_merge("composers.json", path)
        assert len(spans_of(read_events("composers.json"))["event/batch"]) == 2, path


def test_traces_merged_by_composers_merger_merge_again_on_the_same_clock():
    from composer.profiler.json_trace_merger import merge_traces as composers_merge

    train(profile_only_markers(cyclic_schedule(warmup=0, active=1, repeat=2)), num_batches=3)
    first, second = "run/traces/ep0-ba1-rank0.json", "run/traces/ep0-ba2-rank0.json"
    composers_merge("composers.json", first)
    merge_traces("ours.json", "composers.json", second)
    actual, whole = (spans_of(read_events(path)) for path in ("ours.json", "run/traces/merged_trace.json"))
    assert [(event["ts"], event["end"]) for event in actual["event/batch"]] == [
        (event["ts"], event["end"]) for event in whole["event/batch"]
    ]


def test_our_actions_equal_composers():
    from composer.profiler import ProfilerAction as Theirs

    assert issubclass(Theirs, StringEnum)
    assert [Theirs(action.value) for action in ProfilerAction] == list(Theirs)
    assert list(ProfilerAction) == list(Theirs)
    assert [actual != theirs for actual in ProfilerAction for theirs in Theirs].count(False) == len(Theirs)
    assert [(str(action), f"{action}", repr(action)) for action in ProfilerAction] == [
        (str(action), f"{action}", repr(action)) for action in Theirs
    ]


def test_an_earlier_runs_traces_are_not_overwritten_unasked():
    train(profile_only_markers(cyclic_schedule(warmup=0, active=1)), num_batches=2)
    with pytest.raises(FileExistsError, match="run/traces"):
        make_trainer(profile_only_markers())
    train(profile_only_markers(handlers=[JSONTraceHandler(overwrite=True)]), num_batches=2)


def test_json_of_a_trace_is_valid_for_every_parser():
    train(profile_only_markers(cyclic_schedule(warmup=0, active=1)), num_batches=2)
    text = Path("run/traces/merged_trace.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_trainer_without_a_profiler_says_what_is_missing():
    with pytest.raises(RuntimeError, match=r"kinetoscope\.composer\.Profiler"):
        Trainer(model=make_model(), callbacks=[JSONTraceHandler()], device="cpu", progress_bar=False)


def test_kinetoscope_handler_in_composers_profiler_reports_the_missing_parts():
    from composer.profiler import Profiler as ComposersProfiler

    with pytest.raises(RuntimeError, match=r"kinetoscope\.composer\.Profiler"):
        make_trainer(ComposersProfiler(ALWAYS, [JSONTraceHandler()], sys_prof_cpu=False, **NO_TORCH))


def test_the_example_leaves_a_merged_trace():
    example = Path(__file__).parents[3] / "examples" / "composer_trainer.py"
    stubs = Path(__file__).parents[2] / "support" / "composer_stubs"
    paths = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(stubs)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(example), "--out", "here"],
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    events = read_events("here/traces/merged_trace.json")
    assert [span["args"]["batch"] for span in spans_of(events)["event/batch"]] == [2, 3, 4, 5, 6]
    assert {span["args"]["microbatch"] for span in spans_of(events)["event/forward"]} == {0, 1}
