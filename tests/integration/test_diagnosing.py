"""`kinetoscope.profile(diagnose=True)` on real runs: what it finds, what others can read, and what it leaves behind."""

import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import threading

import pytest

import kinetoscope
from kinetoscope import cyclic_schedule
from support.fork_server import run_forked
from support.trace_files import trace_text
from support.trace_processor.trace_processor import load

torch = pytest.importorskip("torch")
SCHEDULE = cyclic_schedule(skip_first=1, warmup=1, active=10, per="run")
NUM_ROWS = 100_000


def train(folder, make_rows, **options):
    """Return a loop in which ``make_rows`` is called in each batch; returns the run's folder."""
    model = torch.nn.Linear(64, 64)
    options = {"schedule": SCHEDULE, "system": False, "diagnose": True, "overwrite": True, "quiet": True} | options
    with kinetoscope.profile(folder, strict=True, **options) as profiler:
        for _ in profiler.batches(range(13)):
            make_rows()
            model(torch.ones(8, 64)).sum().backward()
    return folder


def make_rows():
    return [[number] for number in range(NUM_ROWS)]


LINE = make_rows.__code__.co_firstlineno + 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"), make_rows)


def test_line_that_allocates_most_objects_is_found_with_its_saving(trained):
    (found,) = [one for one in kinetoscope.analyze(trained).findings if one.kind == "garbage_collection"]
    assert found.where.lines[0].endswith(f"test_diagnosing.py:{LINE}")
    assert dict(found.evidence)["share_of_line"] > 0.8
    assert found.saving_ns_per_step > 0


def test_viewers_read_what_sources_record(trained):
    with load(trained / "traces" / "merged_trace.json.gz") as trace:
        assert trace.errors() == {}
        assert len(trace.query("select name from slice where category = 'gc'")) > 10


def test_lines_are_redacted_like_other_texts(tmp_path):
    train(tmp_path, make_rows, torch=False, redact=lambda text: text.replace("test_diagnosing", "secret"))
    text = trace_text(next((tmp_path / "traces").glob("ep*.json.gz")))
    assert "test_diagnosing" not in text
    assert f"secret.py:{LINE}" in text


def state_of_the_process():
    """Everything that a source may change."""
    loaders = torch.utils.data.dataloader
    kinds = (loaders.DataLoader, loaders._BaseDataLoaderIter, loaders._MultiProcessingDataLoaderIter)
    callbacks = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    return {
        "callbacks of the collector": list(gc.callbacks),
        "threads": threading.enumerate(),
        "methods of loaders": [dict(vars(kind)) for kind in kinds],
        "handlers of logs": [list(logging.getLogger(name).handlers) for name in ("", "torch", "torch._dynamo")],
        "levels of logs": [logging.getLogger(name).level for name in ("", "torch", "torch._dynamo")],
        "callbacks of the compiler": callbacks and (list(callbacks.start_callbacks), list(callbacks.end_callbacks)),
        "tracing": (sys.gettrace(), sys.getprofile()),
    }


OF_THE_PROFILER_ITSELF = ("threads", "methods of loaders")
"""State that changes in a run without sources too, until it ends."""


def changes(before, now):
    return {what for what in before if before[what] != now[what]}.difference(OF_THE_PROFILER_ITSELF)


def fail():
    raise ValueError("of the user's")


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("diagnose", [False, True])
@pytest.mark.parametrize("end", [fail, press_ctrl_c, None])
def test_a_run_leaves_the_process_as_it_was_however_it_ends_and_in_a_second_run(tmp_path, diagnose, end):
    before, inside = state_of_the_process(), []

    def work():
        inside.append(changes(before, state_of_the_process()))
        if len(inside) == 5 and end is not None:
            end()

    for run in ("first", "second"):
        inside.clear()
        with pytest.raises((ValueError, KeyboardInterrupt)) if end else contextlib.nullcontext():
            train(tmp_path / run, work, torch=False, diagnose=diagnose)
        assert state_of_the_process() == before
        assert inside[0] == set()
        assert ("callbacks of the collector" in inside[4]) is diagnose


def test_a_forked_child_has_no_hook_of_the_run(tmp_path):
    before, status = state_of_the_process(), []

    def work():
        if os.getpid() == parent and not status:
            status.append(0)
        elif len(status) == 1:
            child = os.fork()
            if child == 0:
                os._exit(len(changes(before, state_of_the_process())))
            status.append(os.waitpid(child, 0)[1])

    parent = os.getpid()
    train(tmp_path, work, torch=False)
    assert status == [0, 0]


SYSTEM_PROFILER = ("cpu_use", "loop_clocks", "nvml", "system_profiler", "visible_gpus", "window_source")


def test_without_sources_nothing_of_them_is_imported():
    code = (
        "import sys, tempfile, kinetoscope\n"
        "with kinetoscope.profile(tempfile.mkdtemp(), torch=False, system=False, quiet=True) as profiler:\n"
        "    for _ in profiler.batches(range(14)): pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('kinetoscope.sources.')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    system = [f"kinetoscope.sources.{name}" for name in SYSTEM_PROFILER]
    assert ran.stdout.splitlines()[-1] == str(system)


NOTICES_COMPILER = """
import sys, torch
from kinetoscope import CompileEvents, Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

def double(rows):
    return rows * 2

handler = MemoryTraceHandler()
with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[CompileEvents()]) as profiler:
    for number in profiler.batches(range(4)):
        if number == 1:
            print("torch._dynamo" in sys.modules)
        if number == 2:
            import torch._dynamo
        if number == 3:
            torch.compile(double, backend="eager")(torch.ones(3))
print([event.name for event in handler.events("compile")])
"""


def test_torchs_compiler_is_not_imported_by_a_source_and_is_noticed_when_it_comes():
    done = run_forked(("torch", "kinetoscope.testing"), NOTICES_COMPILER)
    assert done.stdout.splitlines() == ["False", "['compile/double']"], done.stderr


def test_a_run_with_all_sources_does_not_import_torchs_compiler(tmp_path):
    program = """
import sys
import kinetoscope

with kinetoscope.profile("run", torch=False, diagnose=True, quiet=True) as profiler:
    for _ in profiler.batches(range(14)):
        pass
print("torch._dynamo" in sys.modules)
"""
    done = run_forked(("torch", "kinetoscope.api"), program, folder=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["False"], done.stderr


def test_recompiled_model_gets_no_finding_on_gc_pauses_of_the_compiler(tmp_path):
    pytest.importorskip("torch._dynamo")
    torch._dynamo.reset()
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(8)))
    compiled = torch.compile(model, backend="eager", dynamic=False)
    sizes = iter(range(13, 0, -1))
    train(tmp_path, lambda: compiled(torch.ones(max(7, next(sizes)), 16)))
    kinds = [found.kind for found in kinetoscope.analyze(tmp_path, cache=False).findings]
    assert kinds[0] == "recompilation"
    assert "garbage_collection" not in kinds
    pauses = kinetoscope.load(tmp_path).spans.collect().filter(category="gc")["name"].cast(str)
    assert pauses.str.ends_with(", of the compiler").any()
