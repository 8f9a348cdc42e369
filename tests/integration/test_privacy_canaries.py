"""Redacted output has no user-chosen string: a canary is planted in each string, and found in no file."""

import gzip
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope import ProfilerAction, TorchProfiler
from kinetoscope.cli import main
from support.page_data import page_text
from support.privacy_canaries import CANARY, canaries_in, plant
from support.trace_files import trace_text
from trainsim import Settings, simulate
from trainsim.settings import Fault

FAULTS = (
    Fault(kind="slow_loader", cost_ns=3_000_000),
    Fault(kind="leak", num_bytes=2**22),
    Fault(kind="gc", cost_ns=900_000, every=2),
    Fault(kind="recompilation", cost_ns=2_000_000, every=3),
    Fault(kind="late_host", cost_ns=4_000_000, ranks=(1,)),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of two ranks with a canary in every text."""
    folder = tmp_path_factory.mktemp("made")
    settings = Settings(num_ranks=2, faults=FAULTS, has_shapes=True, has_memory=True, has_stacks=True)
    simulate(settings).write(folder / "plain")
    planted = tmp_path_factory.mktemp("planted") / CANARY
    for path in sorted((folder / "plain").rglob("*.json*")):
        plant(path, planted / "traces", in_devices=False)
    (planted / "traces" / ".manifest").mkdir()
    started = {"attempt": {"host": CANARY, "run_id": CANARY}}
    (planted / "traces" / ".manifest" / "rank0.jsonl").write_text(json.dumps(started))
    return planted


def report(*arguments):
    """Run the command; return its exit code."""
    return main(["report", "--no-cache", *map(str, arguments)])


def of_a_device(run, folder):
    """Return a trace of Kineto's own, with kernels."""
    return plant(Path(__file__).parents[1] / "data" / "hta" / "data_parallel.json.gz", folder)


def test_the_canary_is_in_every_part_of_a_report_that_is_not_redacted(run, tmp_path):
    """So the tests below would see it."""
    assert report(run, "-o", tmp_path / "report.html") == 0
    page = page_text((tmp_path / "report.html").read_text())
    for part in ("name", "hosts", "notes"):
        assert CANARY in json.dumps(page["report"]["run"][part]), part
    for part in ("ranks", "memory", "collectives", "findings"):
        assert CANARY in json.dumps(page["report"][part]), part
    for part in ("texts", "tracks", "counters", "details"):
        assert CANARY in json.dumps(page["timeline"][part]), part
    assert canaries_in(tmp_path / "report.html")


@pytest.mark.parametrize("options", [(), ("--no-timeline",), ("--ranks", "1")])
def test_a_redacted_report_of_a_run_has_no_canary(run, tmp_path, options):
    assert report(run, "--redact", "-o", tmp_path / "report.html", *options) == 0
    assert canaries_in(tmp_path / "report.html") == []


def test_redacted_report_keeps_the_names_of_torch_and_kinetoscope(run, tmp_path):
    assert report(run, "--redact", "-o", tmp_path / "report.html") == 0
    page = page_text((tmp_path / "report.html").read_text())
    assert {"aten::mm", "ProfilerStep#5"} & set(page["timeline"]["texts"])
    assert report(run, "-o", tmp_path / "whole.html") == 0
    whole = page_text((tmp_path / "whole.html").read_text())
    kinds, all_kinds = ([one["kind"] for one in each["report"]["findings"]] for each in (page, whole))
    assert kinds == all_kinds
    assert "straggler" in kinds
    assert {track["kind"] for track in page["timeline"]["tracks"]} >= {"steps", "thread", "stream"}
    keys = {key for details in page["timeline"]["details"] for key in details}
    assert "Input Dims" in keys
    assert any(key.startswith("argument ") for key in keys)
    (advice,) = (row["advice"] for row in page["report"]["findings"] if row["kind"] == "straggler")
    assert "CPU work that other ranks do not do, such as logging or saving" in advice


def test_redacted_reports_of_two_runs_and_of_a_device_have_no_canary(run, tmp_path):
    (other := tmp_path / f"{CANARY} other").mkdir()
    shutil.copytree(run, other, dirs_exist_ok=True)
    assert report(run, other, "--redact", "-o", tmp_path / "compared.html") == 0
    assert canaries_in(tmp_path / "compared.html") == []
    assert report(of_a_device(run, tmp_path / "of"), "--redact", "-o", tmp_path / "device.html") == 0
    assert canaries_in(tmp_path / "device.html") == []


@pytest.mark.parametrize("suffix", [".json.gz", ".parquet"])
def test_a_redacted_report_of_any_format_has_no_canary(run, tmp_path, suffix):
    path = of_a_device(run, tmp_path / "of")
    packed = path.with_suffix("").with_suffix(suffix) if suffix == ".parquet" else path.with_name(f"{path.name}.gz")
    if suffix == ".parquet":
        assert main(["convert", str(path), "-o", str(packed)]) == 0
    else:
        packed.write_bytes(gzip.compress(path.read_bytes()))
    assert report(packed, "--redact", "-o", tmp_path / "report.html") == 0
    assert canaries_in(tmp_path / "report.html") == []


LIVE = f"""
import sys, threading
from kinetoscope import Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler
threading.current_thread().name = "{CANARY}"
always = lambda state: ProfilerAction.ACTIVE
profiler = Profiler(always, MemoryTraceHandler(), run_name="{CANARY}", spool_folder=sys.argv[1]).start()
with profiler.marker("{CANARY}", categories=("{CANARY}",)):
    profiler.marker("{CANARY} loss").counter({{"{CANARY}": 1}})
    print("ready", flush=True)
    sys.stdin.readline()
profiler.close()
"""


def test_a_redacted_report_of_a_run_that_still_records_has_no_canary(tmp_path):
    run = tmp_path / CANARY
    command = [sys.executable, "-c", LIVE, str(run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            assert report(run, "-o", tmp_path / "unredacted.html") == 0
            assert report(run, "--redact", "-o", tmp_path / "report.html") == 0
        finally:
            process.communicate("go on\n", timeout=30)
    assert canaries_in(tmp_path / "unredacted.html")
    assert canaries_in(tmp_path / "report.html") == []


TRAINING = f"""
import threading
import torch

def {CANARY}(model):
    with torch.profiler.record_function("{CANARY} step"):
        model(torch.ones(3, 4)).sum().backward()

def train(profiler, operators, contribute):
    model = torch.nn.Linear(4, 2)
    threading.current_thread().name = "{CANARY} thread"
    with profiler:
        outer = profiler.marker("{CANARY} outer", categories=("{CANARY}", "phase"))
        for batch in profiler.batches(range(6)):
            with outer:
                profiler.marker("{CANARY} loss").counter({{"{CANARY}": batch}})
                profiler.marker("{CANARY} moment").instant()
                {CANARY}(model)
            if batch == 2:
                operators.profiler.add_metadata("{CANARY}", {{"{CANARY}": ["{CANARY}", 1]}})
                contribute()
"""


def test_recording_with_redact_contains_no_canary(run, tmp_path):
    torch = pytest.importorskip("torch")
    torch.ones(1)
    program = tmp_path / "made" / f"train_{CANARY}.py"
    contributed = plant_small(run, tmp_path / "made")
    program.write_text(TRAINING)
    space: dict = {"__file__": str(program)}
    exec(compile(TRAINING, str(program), "exec"), space)
    operators = TorchProfiler(record_shapes=True, with_stack=True)
    profiler = kinetoscope.profile(
        tmp_path / "run",
        torch=operators,
        schedule=lambda state: ProfilerAction.ACTIVE,
        run_name=f"{CANARY} run",
        redact=lambda text: text.replace(CANARY, "bird"),
        diagnose=True,
        report=True,
        strict=True,
    )
    name = threading.current_thread().name
    try:
        space["train"](profiler, operators, lambda: profiler.record_chrome_json_trace_file(contributed))
    finally:
        threading.current_thread().name = name
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".gz", ".jsonl", ".html"}
    assert [(path.name, canaries_in(path)[:3]) for path in files if canaries_in(path)] == []
    (trace,) = (tmp_path / "run" / "traces").glob("ep*.json.gz")
    text = trace_text(trace)
    for canary in ("bird outer", "bird thread", "bird moment", "bird counter", "bird key", "train_bird.py", ": bird"):
        assert canary in text, canary


def plant_small(run, folder):
    """Return a trace with few events and a canary in each text."""
    path = next((run / "traces").glob("*rank0*"))
    trace = json.loads(path.read_text())
    folder.mkdir()
    (small := folder / "small.json").write_text(json.dumps(trace | {"traceEvents": trace["traceEvents"][-200:]}))
    return small
