"""redact=: nothing that a run writes has a text that the user's function does not let through."""

import errno
import gzip
import json
import logging
import os
import signal
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, SystemProfiler, TorchProfiler, TraceHandler
from kinetoscope.errors import SettingsError, TraceFileError
from kinetoscope.formats.chrome import read_chrome
from kinetoscope.formats.trace_redaction import TraceRedactor, write_redacted
from kinetoscope.testing import MemoryTraceHandler
from support.fork_server import run_command, run_with_torch
from support.trace_files import trace_json
from support.trace_processor.trace_processor import load

torch = pytest.importorskip("torch")
SECRETS = (b"secret", b"hidden-node")


def hide(text):
    return text.replace("secret", "###").replace("hidden-node", "a node")


def always(state):
    return ProfilerAction.ACTIVE


@pytest.fixture(autouse=True)
def on_a_machine_with_a_secret_name(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(socket, "gethostname", lambda: "hidden-node")


def secrets_below(folder):
    """Return the files below a folder that hold a secret, decompressed."""
    found = []
    for path in Path(folder).rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        if any(secret in content for secret in SECRETS):
            found.append(path)
    return found


def events_of(path):
    return trace_json(path)["traceEvents"]


@contextmanager
def temporary_files_in(folder):
    """So that a test sees all that is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield


def train(profiler, num_batches=4, body=lambda batch: None):
    model = torch.nn.Linear(4, 2)
    with profiler:
        outer = profiler.marker("secret outer", categories=("secret team", "phase"))
        for batch in profiler.batches(range(num_batches)):
            with outer, torch.profiler.record_function("secret step of mine"):
                profiler.marker("secret loss").counter({"secret series": batch, "other": 1})
                profiler.marker("secret moment").instant()
                model(torch.ones(3, 4)).sum().backward()
            body(batch)
    return profiler


FOREIGN = [
    {"ph": "X", "name": "secret op", "cat": "secret cat", "ts": 5, "dur": 2, "pid": "secret p", "tid": "secret t"}
    | {"args": {"secret key": ["secret value", {"secret": 1}]}, "secret field": "secret"}
]


@pytest.mark.parametrize("torch_file", ["rank{rank}.{batch}.pt.trace.json.gz", None])
def test_no_byte_that_a_run_leaves_has_a_secret_though_everything_has_one(tmp_path, torch_file):
    foreign = tmp_path / "tmp" / "secret.json"
    header = {"baseTimeNanoseconds": time.time_ns(), "secret header": "secret"}
    foreign.write_text(json.dumps(header | {"traceEvents": FOREIGN}))
    operators = TorchProfiler(filename=torch_file, record_shapes=True, with_stack=True)

    def body(batch):
        if batch == 2:
            operators.profiler.add_metadata("secret metadata", {"secret": ["secret", 1]})
            profiler.record_chrome_json_trace_file(foreign)
            foreign.unlink()

    run = tmp_path / "run"
    profiler = kinetoscope.profile(
        run, torch=operators, schedule=always, run_name="secret run", redact=hide, strict=True
    )
    with temporary_files_in(tmp_path / "tmp"):
        train(profiler, body=body)
    assert secrets_below(tmp_path) == []
    left = [path.name for path in (tmp_path / "tmp").iterdir()]
    assert [name for name in left if not name.startswith("torchinductor_")] == []  # torch's compiler makes it
    (trace,) = (run / "traces").glob("ep*.json.gz")
    names = {event["name"] for event in events_of(trace)}
    assert names >= {"### outer", "### step of mine", "### loss", "### moment", "### op", "aten::addmm", "event/batch"}
    header = trace_json(trace)
    assert header["kinetoscope"]["run_name"] == "### run"
    (loss, *_) = (event for event in events_of(trace) if event["name"] == "### loss")
    assert loss["args"] == {"### series": 0, "other": 1}
    (outer, *_) = (event for event in events_of(trace) if event["name"] == "### outer")
    assert outer["cat"] == "### team,phase"
    with load(run / "traces" / "merged_trace.json.gz") as loaded:
        assert loaded.errors() == {}
    if torch_file:
        (torch_trace,) = (run / "torch_traces").glob("*.gz")
        assert json.loads(gzip.decompress(torch_trace.read_bytes()))["### metadata"] == {"###": ["###", 1]}


def test_file_that_torch_saves_to_is_not_left(tmp_path, monkeypatch):
    monkeypatch.setattr("kinetoscope.torch.kineto_stream.can_save_without_gil", lambda results: False)
    with temporary_files_in(tmp_path / "tmp"):
        settings = {"system": False, "schedule": always, "redact": hide, "strict": True, "quiet": True}
        train(kinetoscope.profile(tmp_path / "run", **settings))
    assert secrets_below(tmp_path) == []


def test_uploaded_files_have_no_secret(tmp_path):
    pytest.importorskip("fsspec")
    settings = {"redact": hide, "upload_to": f"file://{tmp_path}/store", "quiet": True}
    train(kinetoscope.profile(tmp_path / "run", schedule=always, **settings))
    stored = [path.name for path in (tmp_path / "store" / "run").rglob("*.json*")]
    assert sorted(stored) == ["ep1-ba4-rank0.json.gz", "merged_trace.json.gz"]
    assert secrets_below(tmp_path) == []


def test_a_run_after_one_that_redacted_writes_what_it_records(tmp_path):
    for number, redact in enumerate((hide, None, hide)):
        settings = {"torch": False, "system": False, "quiet": True}
        train(kinetoscope.profile(tmp_path / f"run{number}", schedule=always, redact=redact, **settings))
    assert {path.relative_to(tmp_path).parts[0] for path in secrets_below(tmp_path)} == {"run1"}


def test_ranks_of_a_launcher_that_names_its_host_leave_no_name_of_it(tmp_path, monkeypatch):
    environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "hidden-node"}
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    with Profiler(
        always, JSONTraceHandler(f"{tmp_path}/run/traces", merged_trace_filename=None), redact=hide
    ) as profiler:
        for _ in profiler.batches(range(2)):
            assert secrets_below(tmp_path / "run" / "traces") == []
    assert secrets_below(tmp_path) == []
    (started, *_) = (tmp_path / "run" / "traces" / ".manifest" / "rank0.jsonl").read_text().splitlines()
    assert json.loads(started)["attempt"]["run_id"] == "a node"


def test_the_systems_counters_are_redacted_too(tmp_path):
    system = SystemProfiler(profile_cpu=True, stats_thread_interval_seconds=0.01)
    handler = MemoryTraceHandler()
    with Profiler(always, handler, sources=[system], redact=lambda text: text.upper(), strict=True) as profiler:
        for _ in profiler.batches(range(2)):
            pass
    assert {name.name for name in handler.cycles[0].names} == {name.name.upper() for name in handler.cycles[0].names}


class Listener(TraceHandler):
    """Keeps all texts that its methods get."""

    def __init__(self):
        self.texts = set()

    def process_duration_event(self, name, categories, is_start, timestamp, wall_clock_time_ns):
        self.texts |= {name, *categories}

    def process_counter_event(self, name, categories, timestamp, wall_clock_time_ns, values):
        self.texts |= {name, *values}

    def process_chrome_json_trace_file(self, filepath):
        self.texts.add(filepath.read_text())

    def process_cycle(self, cycle):
        self.texts |= {cycle.run_name, str(cycle.metadata), str(cycle.names), *(one.name for one in cycle.threads)}


def test_handlers_of_the_users_get_redacted_names_and_files(tmp_path):
    listener = Listener()
    source = TorchProfiler(str(tmp_path / "torch"))
    train(Profiler(always, listener, sources=[source], run_name="secret", redact=hide, strict=True))
    assert "### outer" in listener.texts
    assert [text for text in listener.texts if "secret" in text] == []


def test_failing_redact_function_lets_nothing_through_and_training_continues(tmp_path, caplog):
    done = []

    def fail(text):
        if "secret" in text or "hidden" in text:
            raise KeyError(text)
        return text if "loss" not in text else None

    train(kinetoscope.profile(tmp_path / "run", schedule=always, redact=fail), body=done.append)
    assert done == [0, 1, 2, 3]
    assert secrets_below(tmp_path) == []
    (trace,) = (tmp_path / "run" / "traces").glob("ep*.json.gz")
    assert sum(event["name"] == "redacted" for event in events_of(trace)) >= 12
    errors = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith("redact failed with KeyError in ")
    assert "secret" not in caplog.text


def test_with_strict_the_error_of_the_function_is_raised_when_the_run_ends(tmp_path):
    with pytest.raises(ZeroDivisionError):
        train(
            kinetoscope.profile(tmp_path / "run", torch=False, redact=lambda text: 1 / 0, schedule=always, strict=True)
        )


def test_a_window_that_is_saved_at_the_second_try_is_redacted_once(tmp_path):
    class FullAtFirst(MemoryTraceHandler):
        tries = 0

        def process_cycle(self, cycle):
            self.tries += 1
            if self.tries == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().process_cycle(cycle)

    handler = FullAtFirst()
    with Profiler(always, handler, redact=lambda text: f"{text}!") as profiler:
        for _ in profiler.batches(range(2)):
            with profiler.marker("work"):
                pass
    (cycle,) = handler.cycles
    assert "work!" in {name.name for name in cycle.names}
    assert cycle.run_name == "run!"


def test_if_every_text_becomes_the_same_all_values_of_a_counter_are_still_there(tmp_path):
    profiler = kinetoscope.profile(
        tmp_path / "run", torch=False, system=False, schedule=always, redact=lambda text: "x", quiet=True
    )
    train(profiler, num_batches=2)
    (trace,) = (tmp_path / "run" / "traces").glob("ep*.json.gz")
    counters = [event["args"] for event in events_of(trace) if event["ph"] == "C"]
    assert [sorted(args.values()) for args in counters] == [[0, 1], [1, 1]]
    with load(trace) as loaded:
        assert loaded.errors() == {}


def test_unreadable_contributed_file_is_skipped_and_a_damaged_one_noted(tmp_path):
    unreadable, damaged = tmp_path / "tmp" / "secret-1.json", tmp_path / "tmp" / "secret-2.json"
    unreadable.write_text("secret text, no trace")
    damaged.write_text(json.dumps(FOREIGN)[:-1] + ', {"secret')

    def body(batch):
        if batch == 1:
            for path in (unreadable, damaged):
                profiler.record_chrome_json_trace_file(path)
                path.unlink()

    settings = {"redact": hide, "strict": True, "quiet": True}
    profiler = kinetoscope.profile(tmp_path / "run", torch=False, schedule=always, **settings)
    train(profiler, body=body)
    assert secrets_below(tmp_path) == []
    (trace,) = (tmp_path / "run" / "traces").glob("ep*.json.gz")
    notes = trace_json(trace)["kinetoscope"]["repaired"]
    assert notes[0].startswith("left out 0-###-1.json: Cannot read the trace")
    assert any("ends too early" in note for note in notes)
    assert "### op" in {event["name"] for event in events_of(trace)}


def test_gpu_trace_gives_equal_results_after_renaming_kernels(tmp_path):
    original, redacted = Path(__file__).parents[1] / "data" / "hta" / "pipeline.json.gz", tmp_path / "rank0.json"
    before = kinetoscope.analyze(original, cache=False)
    kernels = {row.name for row in before.kernels if row.kind == "compute"}
    with redacted.open("wb") as stream:
        hide_kernels = TraceRedactor(lambda text: f"my {text}" if text in kernels else text)
        write_redacted(read_chrome(original), stream, hide_kernels)
    after = kinetoscope.analyze(redacted, cache=False)
    assert {row.name for row in after.kernels if row.kind == "compute"} == {f"my {name}" for name in kernels}
    assert (after.ranks, after.steps, after.operators) == (before.ranks, before.steps, before.operators)


KILLED = """
import os, sys
import kinetoscope
from kinetoscope import ProfilerAction
redact = lambda text: text.replace("secret", "###")
always = lambda state: ProfilerAction.ACTIVE
with kinetoscope.profile(sys.argv[1], torch=False, system=False, schedule=always, redact=redact) as profiler:
    for batch in profiler.batches(range(4)):
        with profiler.marker("secret work"):
            pass
        if batch == 3:
            profiler.lifecycle.drain(30)
            os.kill(os.getpid(), 9)
"""


def test_unsaved_data_of_a_killed_run_is_recovered_with_names_only_on_request(tmp_path):
    run = tmp_path / "run"
    done = run_with_torch(KILLED, run)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert {path.relative_to(run).parts[0] for path in secrets_below(run)} == {"live"}
    refused = run_command("recover", run)
    assert refused.returncode == 1
    assert "redacts what it writes (redact=)" in refused.stderr
    assert "--without-redaction" in refused.stderr
    assert {path.relative_to(run).parts[0] for path in secrets_below(run)} == {"live"}
    with pytest.raises(TraceFileError, match="No trace in"):
        kinetoscope.load(run)
    recovered = run_command("recover", run, "--without-redaction")
    assert recovered.returncode == 0, recovered.stderr
    (trace,) = (run / "traces").glob("ep*.json.gz")
    assert sum(event["name"] == "secret work" for event in events_of(trace)) == 4


def test_redact_that_is_no_function_is_refused_at_once(tmp_path):
    with pytest.raises(SettingsError, match="redact must be a function from a string"):
        kinetoscope.profile(tmp_path / "run", redact="secret")  # pyright: ignore[reportArgumentType]
