"""A run's folder that somebody else made: no command obeys what a file in it says about any place outside."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kinetoscope.recording.recorder_choice import IS_PURE

needs_files = pytest.mark.skipif(IS_PURE, reason="the recorder in Python keeps everything in memory: a kill loses it")

KILLED = """
import os, sys, time
from pathlib import Path
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
def plan(state): return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch == 1 else ProfilerAction.ACTIVE
folder = sys.argv[1]
with Profiler(plan, JSONTraceHandler(folder + "/traces"), live_folder=sys.argv[2] or None) as profiler:
    for batch in profiler.batches(range(100)):
        with profiler.marker("work"):
            pass
        if batch == 5:
            until = time.monotonic() + 60
            logged = lambda: "".join(it.read_text() for it in Path(sys.argv[2] or folder).glob("live/*/windows.jsonl"))
            while '"saved"' not in logged() or logged().count('"opened"') != 2:
                assert time.monotonic() < until
                time.sleep(0.01)
            os.kill(os.getpid(), 9)
"""


def kinetoscope(*arguments):
    command = [sys.executable, "-m", "kinetoscope", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def kill_a_run(folder, live_folder=""):
    done = subprocess.run([sys.executable, "-c", KILLED, folder, live_folder], stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def once_killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "run"
    kill_a_run(folder)
    return folder


@pytest.fixture
def run(tmp_path, once_killed):
    """The folder of a killed run, which a test then makes somebody else's."""
    return Path(shutil.copytree(once_killed, tmp_path / "somewhere" / "run", symlinks=True))


@pytest.fixture
def outside(tmp_path):
    """What nobody may touch."""
    folder = tmp_path / "outside"
    (folder / "traces").mkdir(parents=True)
    (folder / "file").write_text("somebody's own")
    (folder / "traces" / "file.json").write_text("[]")
    return folder


def seen(folder):
    """All that a command could change about a folder."""
    paths = [folder, *sorted(folder.rglob("*"))]
    states = [path.lstat() for path in paths]
    contents = [path.read_bytes() if path.is_file() else None for path in paths]
    return [(str(p), s.st_ino, s.st_mode, s.st_mtime_ns, c) for p, s, c in zip(paths, states, contents, strict=True)]


def live_folder(run):
    [folder] = [path for path in (run / "live").iterdir() if path.is_dir()]
    return folder


def change_run(run, recipe=(), **fields):
    """Changes what ``run.json`` says, of the run or of its one handler."""
    path = live_folder(run) / "run.json"
    said = json.loads(path.read_text())
    said["recipes"] = [said["recipes"][0] | dict(recipe)]
    path.write_text(json.dumps(said | fields))


def spans(path, name):
    return [it for it in json.loads(path.read_text())["traceEvents"] if it["ph"] == "X" and it["name"] == name]


# -- recover -------------------------------------------------------------------------------------------------------


@needs_files
@pytest.mark.parametrize("folder", ["../../outside/new", "../../outside", "{outside}/new", "link", "link/traces"])
def test_recover_writes_into_the_runs_own_folder_whatever_folder_run_json_names(run, outside, folder):
    (run / "link").symlink_to(outside)
    change_run(run, {"folder": folder.format(outside=outside)})
    before = seen(outside)
    done = kinetoscope("recover", run)
    assert done.returncode == 0, done.stderr
    assert seen(outside) == before
    assert len(spans(run / "traces" / "ep0-ba5-rank0.json", "work")) == 4
    assert "--traces" in done.stdout + done.stderr


@needs_files
@pytest.mark.parametrize(
    "recipe",
    [
        {"filename": "../../../outside/ep{epoch}-rank{rank}.json"},
        {"filename": "OUTSIDE/ep{epoch}-rank{rank}.json"},
        {"filename": "{rank:999999999999}.json"},
        {"filename": "{rank.__class__}.json"},
        {"filename": "a\0b.json"},
        {"filename": "x" * 5000},
        {"filename": ""},
    ],
    ids=lambda it: ascii(it["filename"])[:30],
)
def test_recover_gives_its_own_names_to_traces_whose_handlers_names_lead_elsewhere(run, outside, recipe):
    change_run(run, {"filename": recipe["filename"].replace("OUTSIDE", str(outside))})
    before = seen(outside.parent)[0], seen(outside)
    done = kinetoscope("recover", run)
    assert done.returncode == 0, done.stderr
    assert (seen(outside.parent)[0], seen(outside)) == before
    assert len(spans(run / "traces" / "ep0-ba5-rank0.json", "work")) == 4


@needs_files
@pytest.mark.parametrize("name", ["../../../outside/x", "/", "a\x1bb"], ids=ascii)
def test_a_run_name_is_no_path(run, outside, name):
    change_run(run, {"filename": "{run_name}/{rank}.json"}, run_name=name)
    before = seen(outside)
    assert kinetoscope("recover", run).returncode == 0
    assert seen(outside) == before
    assert len(spans(run / "traces" / "ep0-ba5-rank0.json", "work")) == 4


@needs_files
@pytest.mark.parametrize("merged", ["../../../outside/file", "{outside}/new", "a\nb"], ids=ascii)
def test_recover_merges_into_the_folder_of_the_traces_only(run, outside, merged):
    change_run(run, {"merged": merged.format(outside=outside)})
    before = seen(outside)
    assert kinetoscope("recover", run).returncode == 0
    assert seen(outside) == before
    assert (run / "traces" / "merged_trace.json").exists()


@needs_files
def test_a_folder_outside_is_used_when_it_is_named_again(run, outside):
    change_run(run, {"folder": "../../outside/traces"})
    done = kinetoscope("recover", run, "--traces", outside / "traces")
    assert done.returncode == 0, done.stderr
    assert len(spans(outside / "traces" / "ep0-ba5-rank0.json", "work")) == 4
    assert (outside / "traces" / "merged_trace.json").exists()


@needs_files
def test_what_a_handler_kept_outside_of_the_live_folders_run_is_recovered_there_when_asked_for(tmp_path):
    kill_a_run(tmp_path / "there", tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "again")
    done = kinetoscope("recover", tmp_path / "here")
    assert spans(tmp_path / "here" / "traces" / "ep0-ba5-rank0.json", "work"), done.stderr
    assert str(tmp_path / "there" / "traces") in done.stdout + done.stderr
    kinetoscope("recover", tmp_path / "again", "--traces", tmp_path / "there" / "traces")
    assert spans(tmp_path / "there" / "traces" / "ep0-ba5-rank0.json", "work")


@needs_files
@pytest.mark.parametrize("rank", [-1, 10**9, 10**30, 1.5, "0", None, "../x"])
def test_ranks_that_are_none_are_reported_and_end_no_recovery_in_a_traceback(run, outside, rank):
    change_run(run, rank=rank)
    before = seen(outside)
    done = kinetoscope("recover", run)
    assert "Traceback" not in done.stderr
    assert seen(outside) == before


# -- live folders elsewhere ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "\n", "\nsame", "\nother"], ids=ascii)
@pytest.mark.parametrize("mode", [0o755, 0o700])
@needs_files
def test_a_pointer_leads_nowhere_unless_both_ends_hold_one_token_and_the_folder_is_ours_alone(
    run, outside, once_killed, token, mode
):
    """The folder is that of another run, of this user even, which was killed and not recovered yet."""
    victim = outside / "live"
    shutil.copytree(live_folder(once_killed), victim)
    victim.chmod(mode)
    said = json.loads((victim / "run.json").read_text())
    (victim / "run.json").write_text(json.dumps(said | {"token": "same"}))
    (run / "live" / "x.elsewhere").write_text(f"{victim}{token}\n")
    before = seen(outside)
    done = kinetoscope("recover", run)
    is_trusted = token == "\nsame" and mode == 0o700
    assert (seen(outside) == before) is not is_trusted
    assert done.stdout.count("Rank 0") == 1 + is_trusted
    assert is_trusted or "x.elsewhere" in done.stderr


@needs_files
@pytest.mark.parametrize("kind", ["folder", "file", "nothing", "pipe", "nul", "huge"])
def test_links_and_pipes_among_the_live_folders_are_reported_and_passed_over(run, outside, kind):
    strange = run / "live" / "strange.elsewhere"
    if kind == "pipe":
        os.mkfifo(strange)
    elif kind == "nul":
        strange.write_bytes(b"/tmp/\0x\ntoken\n")
    elif kind == "huge":
        with strange.open("wb") as stream:
            stream.truncate(1 << 40)
    else:
        strange.symlink_to({"folder": outside, "file": outside / "file", "nothing": outside / "nothing"}[kind])
        (run / "live" / "strange").symlink_to(outside)
    before = seen(outside)
    done = kinetoscope("recover", run)
    assert done.returncode == 0, done.stderr
    assert seen(outside) == before
    assert "strange" in done.stderr
    assert spans(run / "traces" / "ep0-ba5-rank0.json", "work")


@needs_files
@pytest.mark.parametrize("name", ["live", "traces", "traces/.manifest", "traces/.manifest/rank0.jsonl"])
def test_recover_goes_through_no_link_in_the_runs_folder(run, outside, name):
    (outside / "moved").mkdir()
    shutil.move(run / name, outside / "moved" / "it")
    (run / name).symlink_to(outside / "moved" / "it")
    before = seen(outside)
    done = kinetoscope("recover", run)
    assert done.returncode == 1
    assert "symbolic link" in done.stderr
    assert "Traceback" not in done.stderr
    assert seen(outside) == before
