"""A run's folder from another person: no command uses a place outside it because a file in it says so."""

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from kinetoscope.errors import UnsafePathError
from kinetoscope.merge.manifest_merge import merge_manifest
from kinetoscope.uploads.upload_queue import delete_when_uploaded
from support.fork_server import run_command, run_program

KILLED = """
import os, sys, time
from pathlib import Path
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
def plan(state): return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch == 1 else ProfilerAction.ACTIVE
folder = sys.argv[1]
with Profiler(plan, JSONTraceHandler(folder + "/traces"), spool_folder=sys.argv[2] or None) as profiler:
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


def kill_a_run(folder, spool_folder=""):
    done = run_program(KILLED, folder, spool_folder)
    assert done.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def once_killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "run"
    kill_a_run(folder)
    return folder


@pytest.fixture
def run(tmp_path, once_killed):
    """The folder of a killed run, which a test then changes as another person could."""
    return Path(shutil.copytree(once_killed, tmp_path / "somewhere" / "run", symlinks=True))


@pytest.fixture
def outside(tmp_path):
    """A folder that must not be touched."""
    folder = tmp_path / "outside"
    (folder / "traces").mkdir(parents=True)
    (folder / "file").write_text("somebody's own")
    (folder / "traces" / "file.json").write_text("[]")
    return folder


def seen(folder):
    """Everything in a folder that a command could change."""
    paths = [folder, *sorted(folder.rglob("*"))]
    states = [path.lstat() for path in paths]
    contents = [path.read_bytes() if path.is_file() else None for path in paths]
    return [(str(p), s.st_ino, s.st_mode, s.st_mtime_ns, c) for p, s, c in zip(paths, states, contents, strict=True)]


def spool_folder(run):
    [folder] = [path for path in (run / "live").iterdir() if path.is_dir()]
    return folder


def change_run(run, recipe=(), **fields):
    """Change ``run.json``: fields of the run or of its one handler."""
    path = spool_folder(run) / "run.json"
    document = json.loads(path.read_text())
    document["recipes"] = [document["recipes"][0] | dict(recipe)]
    path.write_text(json.dumps(document | fields))


def spans(path, name):
    return [
        event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X" and event["name"] == name
    ]


# -- recover -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["../../outside/new", "../../outside", "{outside}/new", "link", "link/traces"])
def test_recover_writes_into_the_runs_own_folder_whatever_folder_run_json_names(run, outside, folder):
    (run / "link").symlink_to(outside)
    change_run(run, {"folder": folder.format(outside=outside)})
    before = seen(outside)
    done = run_command("recover", run)
    assert done.returncode == 0, done.stderr
    assert seen(outside) == before
    assert len(spans(run / "traces" / "ep0-ba5-rank0.json", "work")) == 4
    assert "--traces" in done.stdout + done.stderr


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
    ids=lambda entry: ascii(entry["filename"])[:30],
)
def test_recover_renames_traces_that_handlers_named_outside_the_folder(run, outside, recipe):
    change_run(run, {"filename": recipe["filename"].replace("OUTSIDE", str(outside))})
    before = seen(outside.parent)[0], seen(outside)
    done = run_command("recover", run)
    assert done.returncode == 0, done.stderr
    assert (seen(outside.parent)[0], seen(outside)) == before
    assert len(spans(run / "traces" / "ep0-ba5-rank0.json", "work")) == 4


@pytest.mark.parametrize("name", ["../../../outside/x", "/", "a\x1bb"], ids=ascii)
def test_a_run_name_with_slashes_does_not_lead_out_of_the_run_folder(run, outside, name):
    change_run(run, {"filename": "{run_name}/{rank}.json"}, run_name=name)
    before = seen(outside)
    assert run_command("recover", run).returncode == 0
    assert seen(outside) == before
    assert len(spans(run / "traces" / "ep0-ba5-rank0.json", "work")) == 4


@pytest.mark.parametrize("merged", ["../../../outside/file", "{outside}/new", "a\nb"], ids=ascii)
def test_recover_merges_into_the_folder_of_the_traces_only(run, outside, merged):
    change_run(run, {"merged": merged.format(outside=outside)})
    before = seen(outside)
    assert run_command("recover", run).returncode == 0
    assert seen(outside) == before
    assert (run / "traces" / "merged_trace.json").exists()


def test_a_folder_outside_is_used_when_it_is_named_again(run, outside):
    change_run(run, {"folder": "../../outside/traces"})
    done = run_command("recover", run, "--traces", outside / "traces")
    assert done.returncode == 0, done.stderr
    assert len(spans(outside / "traces" / "ep0-ba5-rank0.json", "work")) == 4
    assert (outside / "traces" / "merged_trace.json").exists()


def test_traces_of_a_handler_outside_the_run_folder_are_recovered_on_request(tmp_path):
    kill_a_run(tmp_path / "there", tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "again")
    done = run_command("recover", tmp_path / "here")
    assert spans(tmp_path / "here" / "traces" / "ep0-ba5-rank0.json", "work"), done.stderr
    assert str(tmp_path / "there" / "traces") in done.stdout + done.stderr
    run_command("recover", tmp_path / "again", "--traces", tmp_path / "there" / "traces")
    assert spans(tmp_path / "there" / "traces" / "ep0-ba5-rank0.json", "work")


@pytest.mark.parametrize("rank", [-1, 10**9, 10**30, 1.5, "0", None, "../x"])
def test_ranks_that_are_none_are_reported_and_end_no_recovery_in_a_traceback(run, outside, rank):
    change_run(run, rank=rank)
    before = seen(outside)
    done = run_command("recover", run)
    assert "Traceback" not in done.stderr
    assert seen(outside) == before


# -- spool folders elsewhere ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "\n", "\nsame", "\nother"], ids=ascii)
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_pointer_is_followed_only_with_equal_tokens_and_a_private_folder(run, outside, once_killed, token, mode):
    """The folder is that of another killed run of this user, not recovered yet."""
    victim = outside / "live"
    shutil.copytree(spool_folder(once_killed), victim)
    victim.chmod(mode)
    document = json.loads((victim / "run.json").read_text())
    (victim / "run.json").write_text(json.dumps(document | {"token": "same"}))
    (run / "live" / "x.elsewhere").write_text(f"{victim}{token}\n")
    before = seen(outside)
    done = run_command("recover", run)
    is_trusted = token == "\nsame" and mode == 0o700
    assert (seen(outside) == before) is not is_trusted
    assert done.stdout.count("Rank 0") == 1 + is_trusted
    assert is_trusted or "x.elsewhere" in done.stderr


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
    done = run_command("recover", run)
    assert done.returncode == 0, done.stderr
    assert seen(outside) == before
    assert "strange" in done.stderr
    assert spans(run / "traces" / "ep0-ba5-rank0.json", "work")


@pytest.mark.parametrize("name", ["live", "traces", "traces/.manifest", "traces/.manifest/rank0.jsonl"])
def test_recover_follows_no_link_in_the_run_folder(run, outside, name):
    (outside / "moved").mkdir()
    shutil.move(run / name, outside / "moved" / "it")
    (run / name).symlink_to(outside / "moved" / "it")
    before = seen(outside)
    done = run_command("recover", run)
    assert done.returncode == 1
    assert "symbolic link" in done.stderr
    assert "Traceback" not in done.stderr
    assert seen(outside) == before


# -- merging what a manifest lists ---------------------------------------------------------------------------------


def write_manifest(run, *lines, rank=0):
    attempt = {"run_id": "a", "restart": 0, "pid": 1, "host": "elsewhere"}
    started = {"type": "started", "ranks": {"rank": rank}, "attempt": attempt}
    folder = run / "traces" / ".manifest"
    folder.mkdir(parents=True, exist_ok=True)
    closed = {"type": "closed", "rank": rank}
    text = "".join(json.dumps(line) + "\n" for line in (started, *lines, closed))
    (folder / f"rank{rank}.jsonl").write_text(text)


def finished(path, **fields):
    return {"type": "finished", "rank": 0, "path": path, "size_bytes": 1, "timestamp": {}, "cycle": 0} | fields


def write_trace(path, name="span", **header):
    event = {"ph": "X", "name": name, "pid": 0, "tid": 1, "ts": 1.0, "dur": 1.0}
    header = {"baseTimeNanoseconds": 10**18, "kinetoscope": {"rank": 0} | header}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(header | {"traceEvents": [event]}))


def merge_listed(run):
    """Merge the traces in the lists of ranks, as a job of the run does."""
    delete = partial(delete_when_uploaded, run)
    merge_manifest(run / "traces", run / "traces" / "merged_trace.json", run_folder=run, delete=delete)


@pytest.fixture
def saved(tmp_path):
    """The folder of a run that has saved one trace."""
    run = tmp_path / "somewhere" / "run"
    write_trace(run / "traces" / "own.json")
    return run


@pytest.mark.parametrize(
    "path", ["../../../outside/traces/secret.json", "{outside}/traces/secret.json", "link", "sub/secret.json"]
)
def test_merge_ignores_files_outside_its_folder_that_a_manifest_names(saved, outside, path):
    write_trace(outside / "traces" / "secret.json", name="secret")
    (saved / "traces" / "link").symlink_to(outside / "traces" / "secret.json")
    (saved / "traces" / "sub").symlink_to(outside / "traces")
    path = path.format(outside=outside)
    write_manifest(saved, finished(path), {"type": "expired", "path": path}, finished("own.json"))
    before = seen(outside)
    merged = saved / "traces" / "merged_trace.json"
    merge_listed(saved)
    assert seen(outside) == before
    assert spans(merged, "span")
    assert not spans(merged, "secret")


def test_a_merge_deletes_expired_traces_in_its_own_folder(saved):
    write_trace(saved / "traces" / "sub" / "new.json")
    write_manifest(saved, finished("own.json"), {"type": "expired", "path": "own.json"}, finished("sub/new.json"))
    merge_listed(saved)
    assert not (saved / "traces" / "own.json").exists()
    assert (saved / "traces" / "sub" / "new.json").exists()


@pytest.mark.parametrize("sources", ["own.json", 7, None, {"own.json": 1}, [["own.json"], {}, None, "own.json"], True])
def test_a_merged_trace_may_have_any_sources_in_its_header(saved, sources):
    merged = saved / "traces" / "merged_trace.json"
    write_trace(merged, merged=True, sources=sources)
    write_manifest(saved, finished("own.json"), finished("gone.json"))
    merge_listed(saved)
    assert spans(merged, "span")


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_merge_into_a_folder_from_another_person_uses_no_link_or_pipe(saved, outside, kind):
    merged = saved / "traces" / "merged_trace.json"
    merged.symlink_to(outside / "file") if kind == "link" else os.mkfifo(merged)
    write_manifest(saved, finished("own.json"))
    before = seen(outside)
    with pytest.raises(UnsafePathError, match=r"merged_trace\.json"):
        merge_listed(saved)
    assert seen(outside) == before


@pytest.mark.parametrize("rank", [5, 10**8, -1, "0", None])
def test_saved_traces_passes_over_ranks_that_the_run_does_not_have(saved, rank):
    from kinetoscope.core.job.ranks import Attempt, Ranks
    from kinetoscope.recording.window.trace_folder import TraceFolder

    write_manifest(saved, finished("own.json", rank=rank), rank=rank if isinstance(rank, int) and rank >= 0 else 3)
    moments = {"epoch": 1, "no_such": 1, "total_wct": 1.0}, {"epoch": 1e300}, {"total_wct": 1e300}
    write_manifest(saved, *(finished("own.json", timestamp=moment) for moment in moments))
    folder = TraceFolder("x", "{rank}.json", overwrite=True, num_traces_to_keep=-1)
    folder.reopen(saved / "traces", "run", Ranks(0, 0, 2, 2, 0), Attempt("a", 0, 1))
    [(_, paths)] = folder.saved_traces
    assert paths == [saved / "traces" / "own.json", None]


# -- uploads -------------------------------------------------------------------------------------------------------


def queue(run, path, url, number=0, is_expendable=True):
    """Write an entry of the queue, as anybody could, which says that its file may be deleted after the upload."""
    folder = run / ".uploads" / "rank0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:020}-1-1.json").write_text(json.dumps({"path": path, "url": url}))
    if is_expendable:
        (folder / f"{number:020}-1-1.expendable").touch()


@pytest.fixture
def store(tmp_path):
    pytest.importorskip("fsspec")
    return tmp_path / "store"


def test_upload_without_a_url_sends_nothing_and_lists_what_waits(saved, store):
    queue(saved, "traces/own.json", f"file://{store}/own.json")
    done = run_command("upload", saved)
    assert done.returncode == 1
    assert f"traces/own.json -> file://{store}/own.json" in done.stdout
    assert "Still to be uploaded: 1 file." in done.stdout
    assert not store.exists()
    assert run_command("upload", saved, "--to", f"file://{store}").returncode == 0
    assert (store / "own.json").exists()
    assert not (saved / "traces" / "own.json").exists()
    done = run_command("upload", saved)
    assert (done.returncode, done.stdout) == (0, "No pending uploads.\n")
    assert run_command("upload", saved, "--list").returncode == 2


@pytest.mark.parametrize(
    "path",
    ["../../outside/file", "{outside}/file", "link", "sub/file", "/etc/hostname", "a\0b", "", ".", "traces", "pipe"],
)
def test_a_file_that_is_not_in_the_runs_folder_is_not_sent_and_not_deleted(saved, outside, store, path):
    (saved / "link").symlink_to(outside / "file")
    (saved / "sub").symlink_to(outside)
    os.mkfifo(saved / "pipe")
    queue(saved, path.format(outside=outside), f"file://{store}/stolen")
    queue(saved, "traces/own.json", f"file://{store}/own.json", 1)
    before = seen(outside)
    done = run_command("upload", saved, "--to", f"file://{store}", "--retry-for", "0.1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert seen(outside) == before
    assert [path.name for path in store.iterdir()] == ["own.json"]
    assert "Not uploaded, and still there: 1 file." in done.stderr


def test_a_file_outside_is_sent_when_its_folder_is_named_again(saved, outside, store):
    queue(saved, "../../outside/file", f"file://{store}/file", is_expendable=False)
    (outside / "link").symlink_to(saved / "traces" / "own.json")
    queue(saved, "../../outside/link", f"file://{store}/link", 1)
    done = run_command("upload", saved, "--to", f"file://{store}", "--also", outside, "--retry-for", "0.1")
    assert (store / "file").read_text() == "somebody's own"
    assert [path.name for path in store.iterdir()] == ["file"]
    assert "symbolic link" in done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "file://{store}2/x",
        "file://{store}/../elsewhere/x",
        "file://{store}/%2e%2e/x",
        "local://{store}/x",
        "simplecache::file://{store}/x",
        "file://{store}/x::file://{store}2/x",
        "memory://x",
        "file://{store}/x?auto_mkdir=1",
        "{store}/x",
        "",
        "file://",
        "file://{store}/a\x1b[31mb",
    ],
)
def test_entry_that_points_outside_is_skipped(saved, store, url):
    store.mkdir()
    queue(saved, "traces/own.json", url.format(store=store))
    done = run_command("upload", saved, "--to", f"file://{store}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr + run_command("upload", saved).stdout
    assert not list(store.iterdir())
    assert (saved / "traces" / "own.json").exists()
    assert sorted(path.name for path in store.parent.iterdir()) == ["somewhere", "store"]


@pytest.mark.parametrize("url", ["simplecache::s3://b", "s3://b/..", "s3://b?x", "https://host@evil/", "b", "file://b"])
def test_upload_refuses_a_url_with_query_or_credentials(saved, url):
    pytest.importorskip("fsspec")
    queue(saved, "traces/own.json", "s3://b/x")
    done = run_command("upload", saved, "--to", url)
    assert done.returncode == 2
    assert "--to=" in done.stderr


@pytest.mark.parametrize("name", [".uploads", ".uploads/rank0", ".uploads/rank0/lock", ".uploads/rank0/uploaded.jsonl"])
def test_the_path_of_the_queue_must_not_contain_a_link(saved, outside, store, name):
    queue(saved, "traces/own.json", f"file://{store}/own.json")
    (outside / "rank0").mkdir()
    shutil.copy(saved / ".uploads/rank0/00000000000000000000-1-1.json", outside / "rank0")
    place = saved / name
    shutil.rmtree(place, ignore_errors=True)
    place.symlink_to(outside / ("file" if name.endswith(("lock", "jsonl")) else ""))
    before = seen(outside)
    done = run_command("upload", saved, "--to", f"file://{store}", "--retry-for", "0.1")
    assert "Traceback" not in done.stderr
    assert seen(outside) == before
    assert done.returncode == (0 if name.endswith("jsonl") else 1)


RUN = """
import sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
handler = JSONTraceHandler(sys.argv[1] + "/traces", overwrite=True, remote_file_name=sys.argv[3])
with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, handler, upload_to=sys.argv[2], run_name="r") as profiler:
    for batch in profiler.batches(range(1)):
        with profiler.marker("work"):
            pass
"""


def start_again(run, upload_to, remote="{run_name}/{batch}.json"):
    """Start a run in an existing folder."""
    return run_program(RUN, run, upload_to, remote)


def test_run_uploads_leftovers_only_below_its_own_urls_and_reports_it(saved, outside, store):
    (saved / "traces" / "second.json").write_text("[]")
    queue(saved, "traces/own.json", f"file://{store}2/own.json", 0)
    queue(saved, "../../outside/file", f"file://{store}/up/stolen", 1)
    queue(saved, "traces/second.json", f"file://{store}/up/second.json", 2)
    before = seen(outside)
    done = start_again(saved, f"file://{store}/up", f"file://{store}/named/{{rank}}/{{batch}}.json")
    assert done.returncode == 0, done.stderr
    assert seen(outside) == before
    assert sorted(str(path.relative_to(store)) for path in store.rglob("*.json")) == [
        "named/0/1.json",
        "up/r/traces/merged_trace.json",
        "up/second.json",
    ]
    assert not Path(f"{store}2").exists()
    assert "An earlier start of this run left 2 files outside of the run's folder, or for places" in done.stderr


@pytest.mark.parametrize("name", ["live", "traces", "traces/.manifest", ".uploads", "traces/.manifest/rank0.jsonl"])
def test_run_that_starts_in_the_folder_follows_no_link(saved, outside, store, name):
    write_manifest(saved, finished("own.json"))
    place = saved / name
    if place.exists():
        shutil.move(place, outside / "moved")
    else:
        (outside / "moved").mkdir()
    place.symlink_to(outside / "moved")
    before = seen(outside)
    done = start_again(saved, f"file://{store}")
    assert seen(outside) == before
    assert "symbolic link" in done.stderr
