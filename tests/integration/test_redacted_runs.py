"""redact=: two runs that differ in the user's words only leave the same bytes, if the function replaces these words."""

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import msgspec
import pytest

from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS
from kinetoscope.handlers.trackers import Trackers
from kinetoscope.pulse.pulse_recorder import TrainingFacts
from kinetoscope.pulse.stalls import GroupState, read_stalls
from kinetoscope.recording.messages.end_report import EndReport, RunCounts
from kinetoscope.recording.window.run_redaction import redact_group, redact_training
from kinetoscope.testing import FakeClock
from support.polling import wait_for

START = "20260101T000000-1-00000000"
WORDS = {"titan": "share", "garden": "report", "cherry": "window", "pebble": "answer", "Meadow": "Marker"}
"""Ordinary words. Categories and arguments of torch's always stay, so there is none of them."""
NUMBERS = {word: number for number, words in enumerate(WORDS.items()) for word in words}
ANY_WORD = re.compile("|".join(NUMBERS))


def redact(text: str) -> str:
    return ANY_WORD.sub(lambda match: f"name {NUMBERS[match[0]]}", text)


class SummaryWriter:
    """A writer with the methods of tensorboardX that `log_to` calls. Real trackers are in test_trackers.py."""

    __module__ = "tensorboardX.writer"

    def __init__(self):
        self.logged = []

    def add_scalar(self, name, value, batch):
        self.logged.append((name, batch))

    def flush(self):
        pass


def record(words, writer: SummaryWriter) -> None:
    """A run of six batches that names everything by these words, in the folder ``run`` here, uploaded to ``store``."""
    titan, garden, cherry, pebble, meadow = words
    clock, foreign = FakeClock(), Path("foreign.json").absolute()
    event = {"ph": "X", "name": f"{garden} op", "cat": pebble, "ts": 5, "dur": 2, "pid": titan, "tid": cherry}
    event |= {"args": {pebble: [garden, {cherry: 1}]}, meadow: titan}
    header = {"baseTimeNanoseconds": clock.unix_ns(), f"{cherry} header": pebble}
    foreign.write_text(json.dumps(header | {"traceEvents": [event]}))
    remote = {"remote_file_name": "rank{rank}.json", "merged_trace_remote_file_name": "merged.json"}
    with Profiler(
        cyclic_schedule(warmup=0, active=6, per="run"),
        [JSONTraceHandler("run/traces", **remote), Trackers(writer)],
        run_name=f"{titan} run",
        redact=redact,
        clock=clock,
        close_timeout_s=150,
        upload_to=Path("store").absolute().as_uri(),
        quiet=True,
        strict=True,
    ) as profiler:
        for number in profiler.batches(range(6)):
            with profiler.marker(f"{garden} of {meadow}", categories=(cherry, "phase")):
                clock.advance(3_000_000)
            profiler.marker(pebble).counter({cherry: number})
            profiler.marker(f"{titan} moment").instant()
            if number == 3:
                profiler.record_chrome_json_trace_file(foreign)
            clock.advance(1_000_000)
    foreign.unlink()


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the files of a run, by name, without the claim that a process writes once."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".launch"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.timeout(600)
def test_traces_manifests_pulses_uploads_and_metrics_are_equal(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setattr("kinetoscope.core.job.ranks._new_start", lambda: START)
    monkeypatch.setattr("kinetoscope.pulse.pulse_recorder.read_resident_bytes", lambda: 1)
    left = []
    for words in (WORDS.keys(), WORDS.values()):
        folder, writer = tmp_path / "here", SummaryWriter()
        folder.mkdir()
        monkeypatch.chdir(folder)
        gc.disable()
        try:
            record(words, writer)
        finally:
            gc.enable()
        left.append((files_in(folder), writer.logged))
        folder.rename(tmp_path / str(len(left)))
    (files, logged), (others, others_logged) = left
    assert files.keys() == others.keys()
    assert {name for name in files if files[name] != others[name]} == set()
    assert logged == others_logged
    assert not [name for name, content in files.items() if any(word.encode() in content for word in WORDS)]
    assert {"store/rank0.json", "store/merged.json", f"run/pulse/{START}.pulse"} <= files.keys()
    assert b"name 1 of name 4" in files["store/merged.json"]


HANGS = """
    import re, sys, threading
    import kinetoscope

    numbers = dict(word.split("=") for word in sys.argv[2:])
    pattern = re.compile("|".join(numbers))
    redact = lambda text: pattern.sub(lambda match: f"name {numbers[match[0]]}", text)

    def garden():
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    threading.Thread(target=garden, name="cherry", daemon=True).start()
    settings = {"torch": False, "system": False, "quiet": True, "hangs": True, "redact": redact}
    with kinetoscope.profile(sys.argv[1], schedule=lambda _: "skip", run_name="titan", **settings) as profiler:
        for number in profiler.batches(range(9)):
            with profiler.marker("pebble"):
                if number == 8:
                    garden()
"""


def stuck_phase(folder: Path, script: str, program: str) -> dict[str, object]:
    """Run a program until it has reported that it hangs; return what is in the file, without times and steps."""
    folder.mkdir()
    (folder / script).write_text(dedent(program))
    command = [sys.executable, script, "run", *(f"{word}={number}" for word, number in NUMBERS.items())]
    with subprocess.Popen(command, cwd=folder, env=os.environ | {"KINETOSCOPE_HANG_S": "1"}) as process:
        try:
            wait_for(lambda: read_stalls(folder / "run"), timeout_s=300)
        finally:
            process.kill()
    (phase,) = read_stalls(folder / "run")[0].phases
    kept = ("phase", "hangs", "location", "stacks", "groups")
    return {name: value for name, value in msgspec.to_builtins(phase).items() if name in kept}


@pytest.mark.timeout(600)
@pytest.mark.skipif(not HAS_RUN_FOLDERS, reason="needs folders of runs")
def test_stacks_of_a_hung_run_are_equal(tmp_path):
    other = HANGS
    for word, another in WORDS.items():
        other = other.replace(word, another)
    found = [stuck_phase(tmp_path / "0", "Meadow.py", HANGS), stuck_phase(tmp_path / "1", "Marker.py", other)]
    assert found[0] == found[1]
    assert "name 4.py(" in str(found[0]["stacks"])
    assert "name 1" in str(found[0]["location"])


def test_names_of_groups_and_optimizers_are_redacted():
    group = redact_group(GroupState("titan", [0, 1], 7, "gloo:garden"), redact)
    assert (group.name, group.collective, group.ranks) == ("name 0", "gloo:name 1", [0, 1])
    training = redact_training(TrainingFacts(1, "MeadowSGD", 12), redact)
    assert training == TrainingFacts(1, "name 4SGD", 12)


def test_the_error_that_ended_a_run_without_a_trace_is_redacted(monkeypatch):
    noted = []
    monkeypatch.setattr("sys.last_value", type("cherryError", (Exception,), {})(), raising=False)
    handler = SimpleNamespace(record_empty_run=noted.append)
    EndReport(RunCounts(num_batches=1), cyclic_schedule(), [handler], redact, is_quiet=True).show()
    assert noted == [
        "Nothing was recorded: the program ended with name 2Error after 1 batch; the first to record is 1."
    ]
