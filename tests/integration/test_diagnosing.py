"""`kinetoscope.profile(diagnose=True)` on real runs: what it finds, what others can read, and what it leaves behind."""

import gc
import logging
import subprocess
import sys
import threading

import pytest

import kinetoscope
from kinetoscope import cyclic_schedule
from trace_processor.trace_processor import load

torch = pytest.importorskip("torch")
pytest.importorskip("polars")

SCHEDULE = cyclic_schedule(skip_first=1, warmup=1, active=10, per="run")
NUM_ROWS = 20_000


def train(folder, make_rows, **options):
    """A loop in which ``make_rows`` is called in each batch; returns the run's folder."""
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


def test_the_line_that_makes_most_objects_is_found_with_what_mending_saves(trained):
    (found,) = [one for one in kinetoscope.analyze(trained).findings if one.kind == "garbage_collection"]
    assert found.where.lines[0].endswith(f"test_diagnosing.py:{LINE}")
    assert dict(found.evidence)["share_of_line"] > 0.8
    assert found.saving_ns_per_step > 0


def test_viewers_read_what_sources_record(trained):
    with load(trained / "traces" / "merged_trace.json") as trace:
        assert trace.errors() == {}
        assert len(trace.query("select name from slice where category = 'gc'")) > 10


def test_lines_are_redacted_like_other_texts(tmp_path):
    train(tmp_path, make_rows, torch=False, redact=lambda text: text.replace("test_diagnosing", "secret"))
    text = next((tmp_path / "traces").glob("ep*.json")).read_text()
    assert "test_diagnosing" not in text
    assert f"secret.py:{LINE}" in text


def state_of_the_process():
    """Everything that a source may change."""
    loader = torch.utils.data.DataLoader
    return {
        "callbacks of the collector": list(gc.callbacks),
        "threads": threading.enumerate(),
        "methods of loaders": {name: getattr(loader, name) for name in ("__init__", "__iter__", "_get_iterator")},
        "handlers of logs": {name: list(logging.getLogger(name).handlers) for name in ("torch", "torch._dynamo")},
        "levels of logs": {name: logging.getLogger(name).level for name in ("torch", "torch._dynamo")},
        "dynamo": "torch._dynamo" in sys.modules,
    }


@pytest.mark.parametrize("diagnose", [False, True])
def test_a_run_leaves_the_process_as_it_was_also_after_an_error(tmp_path, diagnose):
    before, inside = state_of_the_process(), []

    def fail():
        inside.append(state_of_the_process())
        if len(inside) == 5:
            raise ValueError("of the user's")

    with pytest.raises(ValueError, match="of the user's"):
        train(tmp_path, fail, torch=False, diagnose=diagnose)
    assert state_of_the_process() == before
    assert inside[0] == before or {**inside[0], "threads": []} == {**before, "threads": []}
    assert (inside[-1]["callbacks of the collector"] == before["callbacks of the collector"]) is not diagnose


def test_without_sources_nothing_of_them_is_imported():
    code = (
        "import sys, tempfile, kinetoscope\n"
        "with kinetoscope.profile(tempfile.mkdtemp(), torch=False, system=False) as profiler:\n"
        "    for _ in profiler.batches(range(14)): pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('kinetoscope.sources.')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "['kinetoscope.sources.nvml', 'kinetoscope.sources.system_profiler']"
