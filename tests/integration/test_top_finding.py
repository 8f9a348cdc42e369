"""The end of a run tells the first finding. What looks for it never outlives the run. Real processes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import kinetoscope
from kinetoscope.core.background.background_process import BackgroundProcess
from kinetoscope.core.background.jobs import job_command
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.run_row import read_row
from kinetoscope.handlers.top_finding import TopFindingSearch
from kinetoscope.server.run_search import find_runs
from support.fork_server import start_forked
from support.page_data import page_text
from support.polling import wait_for

MAX_WAIT_S = 100
JOB = "kinetoscope.cli.top_finding_job"
HANGS = """
import os, sys, time
if "kinetoscope.cli.top_finding_job" in sys.orig_argv:
    with open(os.environ["STARTED"] + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(os.environ["STARTED"] + ".part", os.environ["STARTED"])
    time.sleep(600)
"""
TRAINING = """
import logging, os, signal, sys
import kinetoscope
logging.basicConfig(level=logging.INFO, format="%(message)s")
{before}
with kinetoscope.profile("run", torch=False, system=False{settings}) as profiler:
    for batch in profiler.batches(range(6)):
        {in_batch}
"""
SAVED = "Kinetoscope: 1 window recorded in 6 batches, saved to run/traces/merged_trace.json.gz\n"
NEXT = "kinetoscope summary run\n"
TOLD = f"{SAVED}{NEXT}"


class Training:
    """A small run in a process of its own, in which the search for the first finding hangs."""

    def __init__(self, folder, *, before="", settings="", in_batch="pass", **environment):
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(HANGS)
        self.started = folder / "started"
        where = {"PYTHONPATH": str(folder / "site"), "STARTED": str(self.started)}
        program = "import kinetoscope.handlers.top_finding as search; search.MAX_SECONDS = 600\n"
        program += TRAINING.format(before=before, settings=settings, in_batch=in_batch)
        self._running = start_forked(
            ("kinetoscope.api",), program, folder=folder, environment=os.environ | where | environment
        )
        self.pid = self._running.pid

    def wait_for_search(self):
        wait_for(lambda: self.started.exists() or self._running.has_ended())
        assert self.started.exists(), self._running.wait()
        return int(self.started.read_text())

    def wait(self):
        return self._running.wait(MAX_WAIT_S)


SLOW_LOADER = """
import logging, time
import kinetoscope
import kinetoscope.handlers.top_finding as search
search.MAX_SECONDS = 100  # on a busy machine
logging.basicConfig(level=logging.INFO, format="%(message)s")

def load():
    for batch in range(13):
        time.sleep(0.02)
        yield batch

with kinetoscope.profile("run", torch=False, system=False) as profiler:
    for batch in profiler.batches(load()):
        pass
"""
FOUND = re.compile(
    r"Kinetoscope: 1 window recorded in 13 batches, saved to run/traces/merged_trace\.json\.gz\n"
    r"Kinetoscope: Top finding: Input-bound: the loop waits \d+\.\d ms/step for its next batch; "
    r"estimated saving \d+\.\d ms/step\.\n"
    r"kinetoscope summary run\n"
)
SPAWN = """
import multiprocessing, runpy
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=runpy.run_path, args=("train.py",))
    child.start()
    child.join()
"""


@pytest.mark.parametrize("command", [("train.py",), ("-m", "train"), ("spawn.py",)], ids=" ".join)
def test_end_report_has_top_finding_and_saving_for_any_start_method(command, tmp_path):
    (tmp_path / "train.py").write_text(SLOW_LOADER)
    (tmp_path / "spawn.py").write_text(SPAWN)
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=100)
    assert len(FOUND.findall(done.stderr)) == 1, done.stderr
    files = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith("pulse/")} == {
        ".launch",
        *(f"traces/{name}" for name in ("ep0-ba12-rank0.json.gz", "merged_trace.json.gz", ".manifest/rank0.jsonl")),
    }


def test_search_results_are_cached_for_summary_and_the_list_of_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    (tmp_path / "train.py").write_text(SLOW_LOADER)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, stderr=subprocess.PIPE, timeout=100, check=True)
    (run,) = find_runs(RunFolder(tmp_path)).runs
    row = read_row(tmp_path / "run", run.content_hash)
    assert (run.name, row.finding.partition(":")[0]) == ("run", "Input-bound")
    (kept,) = (tmp_path / ".cache" / "kinetoscope").glob("*.report.json")
    report = kinetoscope.analyze(tmp_path / "run")
    assert (row.step_ns, row.num_steps) == (report.run["step_ns"], report.run["num_steps"])
    assert len(list(kept.parent.iterdir())) == 2, "the report came from the cache: no trace was read for it"


def test_a_run_with_a_report_writes_it_and_says_of_which_ranks_it_is(tmp_path):
    program = SLOW_LOADER.replace("system=False", "system=False, report=True")
    (tmp_path / "train.py").write_text(program.replace("search.MAX_SECONDS", "search.MAX_SECONDS_WITH_REPORT"))
    environment = os.environ | {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}

    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, timeout=100
    )

    assert "ms/step. Report on 1 of 2 ranks: run/report.html.\nkinetoscope summary run\n" in done.stderr
    page = page_text((tmp_path / "run" / "report.html").read_text())
    assert page["report"]["findings"][0]["title"].startswith("Input-bound: ")
    assert [track["kind"] for track in page["timeline"]["tracks"]] == ["steps", "markers"]
    assert any("1 of the 2 ranks" in note for note in page["notes"])


def test_a_report_that_takes_too_long_is_not_written_and_its_command_is_named(tmp_path):
    training = Training(tmp_path, settings=", report=True, grace_s=600", in_batch="pass")
    search = training.wait_for_search()
    os.kill(search, signal.SIGKILL)
    done = training.wait()
    assert done.returncode == 0, done.stderr
    assert "No report" in done.stderr
    assert "to write it, run kinetoscope report run." in done.stderr
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".launch", "pulse", "traces"]


def test_a_report_is_written_even_if_the_run_says_nothing(tmp_path):
    training = Training(tmp_path, settings=", report=True, quiet=True")
    os.kill(training.wait_for_search(), signal.SIGKILL)
    done = training.wait()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_sigterm_ends_the_search_at_once_and_the_command_is_named(number, tmp_path):
    training = Training(tmp_path)
    search = training.wait_for_search()
    os.kill(training.pid, number)
    done = training.wait()
    wait_for(lambda: not Path(f"/proc/{search}").exists())  # else it sleeps for much longer
    assert done.returncode == -number, done.stderr
    assert done.stderr.count(TOLD) == 1


def test_a_signal_while_the_search_is_being_started_ends_it_too(tmp_path, monkeypatch):
    """As it may come on a busy machine, which starts a process slowly."""
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    monkeypatch.setattr("kinetoscope.handlers.top_finding.MAX_SECONDS", 600)
    monkeypatch.setattr("kinetoscope.core.background.background_process._KILL_WAIT_S", 100)
    search, started = TopFindingSearch(), []

    class Interrupted(subprocess.Popen):
        def __init__(self, *command, **options):
            super().__init__(*command, **options)
            started.append(self.pid)
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr("kinetoscope.core.background.background_process.subprocess.Popen", Interrupted)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: search.give_up())
    try:
        assert search.find(tmp_path, 600) == ""
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not psutil.pid_exists(started[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_after_a_signal_saved_files_are_listed_without_a_search(number, tmp_path):
    in_batch = f"batch == 5 and os.kill(os.getpid(), {int(number)})"
    training = Training(tmp_path, in_batch=in_batch)
    done = training.wait()
    assert done.returncode == -number, done.stderr
    assert done.stderr.startswith((TOLD, TOLD.replace("6 batches", "5 batches")))
    assert not training.started.exists()
    assert list((tmp_path / "run").glob("live/*")) == []


@pytest.mark.parametrize(
    ("settings", "environment"),
    [(", quiet=True", {}), ("", {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})],
)
def test_no_search_runs_without_a_report(settings, environment, tmp_path):
    training = Training(tmp_path, settings=settings, **environment)
    done = training.wait()
    assert done.returncode == 0
    assert "Kinetoscope:" not in done.stderr
    assert not training.started.exists()


def test_a_search_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    finding = TopFindingSearch()
    assert finding.find(tmp_path, 1.0) == ""
    assert [child for child in psutil.Process().children() if JOB in child.cmdline()] == []


def test_a_run_that_may_not_close_any_longer_does_not_search(tmp_path):
    assert TopFindingSearch().find(tmp_path, 0.0) == ""


@pytest.mark.parametrize(("name", "num_bytes"), [("rank0.json", 200_000_001), ("rank0.json.gz", 20_000_001)])
def test_in_large_traces_nothing_is_searched(name, num_bytes, tmp_path):
    with (tmp_path / name).open("wb") as file:
        file.truncate(num_bytes)
    ends = []
    search = BackgroundProcess(lambda *end: ends.append(end), keeps_output=True)
    search.start(job_command(JOB, str(tmp_path), None))
    assert search.wait(time.monotonic() + MAX_WAIT_S)
    assert (search.output, ends) == ("", [(1, "error: the traces are too large")])


def test_without_a_python_to_run_nothing_is_searched_and_the_command_is_named(tmp_path):
    training = Training(tmp_path, before="sys.frozen = True")
    done = training.wait()
    assert (done.returncode, done.stderr) == (0, TOLD)
    assert not training.started.exists()
