"""Uploads to a real S3 API, through resets, 503s, lost answers, hangs and kills: nothing is lost, nothing leaks."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from kinetoscope.uploads.upload_queue import add_upload, build_queue_name, read_confirmed, read_queue
from support.fork_server import (
    KINETOSCOPE_MODULES,
    READ_SETTINGS,
    RUN_COMMAND,
    S3_MODULES,
    TORCH_MODULES,
    run_forked,
    start_forked,
)
from support.object_store.s3 import BUCKET, SECRET
from support.polling import wait_for

STORE_S = 0.5  # the store takes longer for an answer than we do
RUN = """
import sys, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
def every_batch(state): return ProfilerAction.ACTIVE_AND_SAVE
def train(batches, **settings):
    handler = JSONTraceHandler("run/traces", num_traces_to_keep=2)
    with Profiler(every_batch, handler, run_name=sys.argv[1], **settings) as profiler:
        for batch in profiler.batches(range(batches)):
            with profiler.marker("train"):
                time.sleep(0.002)
            print(batch, flush=True)
"""


def run(tmp_path, program, environment, name, modules=KINETOSCOPE_MODULES):
    """Run a training script to its end."""
    program = RUN + textwrap.dedent(program)
    return run_forked(modules, program, name, folder=tmp_path, environment=environment)


def start(tmp_path, program, environment, name):
    """Start a training process that is then requested to end."""
    command = [sys.executable, "-c", RUN + textwrap.dedent(program), name]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes)


def upload(run_folder, environment, *options):
    return command(environment, "upload", run_folder, "--to", f"s3://{BUCKET}", *options)


def command(environment, *arguments, folder=None):
    """`kinetoscope` with these arguments, in a process that has imported what talks to S3, but has not used it."""
    program = READ_SETTINGS + RUN_COMMAND
    return run_forked(S3_MODULES, program, *arguments, environment=environment, folder=folder)


def queue(tmp_path, name, num_bytes, num_files=1):
    """Return a run folder with files that wait for upload."""
    run_folder, piece = tmp_path / "run", os.urandom(99_991)  # no part of an upload is like another one
    (run_folder / "traces").mkdir(parents=True)
    for number in range(num_files):
        file = run_folder / "traces" / f"{number}.json"
        file.write_bytes((os.urandom(9) + piece * (1 + num_bytes // len(piece)))[:num_bytes])
        add_upload(run_folder, 0, file, f"s3://{BUCKET}/{name}/{number}.json")
    return run_folder


def test_a_run_ends_with_every_trace_in_the_store_and_keeps_only_the_newest_here(tmp_path, s3):
    done = run(tmp_path, f"train(5, upload_to='s3://{BUCKET}/runs', quiet=True)", s3.environment(), "clean")
    assert (done.returncode, done.stderr) == (0, "")
    names = [f"ep0-ba{batch}-rank0.json" for batch in range(1, 6)]
    stored = [name for name in s3.names() if name.startswith("runs/clean/")]
    assert stored == [f"runs/clean/traces/{name}" for name in [*names, "merged_trace.json"]]
    here = {path.name for path in (tmp_path / "run" / "traces").glob("*.json")}
    assert here == {*names[-2:], "merged_trace.json"}
    for name in here:
        assert s3.content(f"runs/clean/traces/{name}") == (tmp_path / "run" / "traces" / name).read_bytes()


def test_uploads_succeed_though_half_of_all_requests_fail(tmp_path, s3, proxy):
    run_folder = queue(tmp_path, "half", 100_000, num_files=6)
    done = upload(run_folder, s3.environment(proxy.endpoint))
    assert done.returncode == 0, done.stderr
    assert "Uploaded 6 files" in done.stdout
    for number in range(6):
        assert s3.content(f"half/{number}.json") == (run_folder / "traces" / f"{number}.json").read_bytes()
    assert {"reset", "503", "lost"} <= set(proxy.met)


def test_a_store_that_does_not_answer_is_given_up_on_and_says_so(tmp_path, s3, proxy):
    proxy.fault_share, proxy._faults = 1.0, ("hang",)
    run_folder = queue(tmp_path, "hang", 1000)
    done = upload(run_folder, s3.environment(proxy.endpoint, read_timeout_s=0.5), "--retry-for", "1")
    assert done.returncode == 1
    assert "Not uploaded, and still there: 1 file." in done.stderr
    assert len(read_queue(run_folder, 0)) == 1
    proxy.fault_share = 0.0
    assert upload(run_folder, s3.environment(proxy.endpoint)).returncode == 0


def test_no_access_no_bucket_and_no_server_are_reported_without_credentials(tmp_path, s3):
    run_folder = queue(tmp_path, "none", 1000)
    add_upload(run_folder, 0, run_folder / "traces" / "0.json", "s3://no-such-bucket/0.json")
    environment = s3.environment("http://127.0.0.1:9") | {"AWS_SECRET_ACCESS_KEY": SECRET}
    done = upload(run_folder, environment, "--retry-for", "0.1")
    assert done.returncode == 1
    bucket = upload(run_folder, s3.environment(), "--retry-for", "5", "--to", "s3://no-such-bucket")
    assert "NoSuchBucket" in bucket.stderr or "FileNotFoundError" in bucket.stderr
    listed = command(environment, "upload", run_folder)
    assert "Still to be uploaded: 1 file." in listed.stdout
    for text in (done.stdout + done.stderr, bucket.stdout + bucket.stderr, listed.stdout, _all_text(run_folder)):
        assert SECRET not in text
        assert "AKIATESTINGTESTING" not in text


def test_a_large_file_is_sent_in_parts_and_confirmed_by_their_checksum(tmp_path, s3):
    run_folder = queue(tmp_path, "large", 101 << 20)
    assert upload(run_folder, s3.environment()).returncode == 0
    [confirmed] = read_confirmed(run_folder, 0)
    assert confirmed.size_bytes == 101 << 20
    assert s3.etag("large/0.json").endswith("-3")


def test_a_kill_in_mid_upload_loses_nothing(tmp_path, s3, proxy):
    proxy.fault_share, proxy._faults = 1.0, ("hang",)
    run_folder = queue(tmp_path, "killed", 100_000, num_files=3)
    arguments = ("upload", run_folder, "--to", f"s3://{BUCKET}")
    environment = s3.environment(proxy.endpoint)
    process = start_forked(S3_MODULES, READ_SETTINGS + RUN_COMMAND, *arguments, environment=environment)
    wait_for(lambda: proxy.met["hang"], every_s=0.02)
    process.kill()
    process.wait()
    assert len(read_queue(run_folder, 0)) == 3
    assert upload(run_folder, s3.environment()).returncode == 0
    for number in range(3):
        assert s3.content(f"killed/{number}.json") == (run_folder / "traces" / f"{number}.json").read_bytes()


def test_the_next_start_of_a_killed_run_uploads_its_remaining_files(tmp_path, s3):
    environment = s3.environment("http://127.0.0.1:9")
    process = start(tmp_path, f"train(10**6, upload_to='s3://{BUCKET}/again')", environment, "first")
    for _ in range(4):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    left = _wait_for_queue(tmp_path / "run")
    _end_uploads(tmp_path / "run")
    again = f"train(1, upload_to='s3://{BUCKET}/again')"
    restarted = run(tmp_path, again, s3.environment() | {"TORCHELASTIC_RESTART_COUNT": "1"}, "second")
    assert restarted.returncode == 0, restarted.stderr
    expected = {entry.upload.url.removeprefix(f"s3://{BUCKET}/") for entry in left}
    expected.add("again/second/traces/attempt1/ep0-ba1-rank0.json")
    # On a busy machine the uploads go on after the run has ended.
    wait_for(lambda: expected <= set(s3.names()), every_s=STORE_S)


def test_without_a_store_training_does_not_wait_and_the_log_says_what_is_left(tmp_path, s3):
    program = f"train(3, upload_to='s3://{BUCKET}/none', close_timeout_s=4)"
    done = run(tmp_path, program, s3.environment("http://127.0.0.1:9"), "none")
    assert done.returncode == 0
    assert "Not uploaded yet: traces/ep0-ba1-rank0.json" in done.stderr
    assert f"To upload the rest: kinetoscope upload {tmp_path / 'run'}" in done.stderr
    assert SECRET not in done.stderr
    _end_uploads(tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "traces").glob("*rank0.json")} == {
        f"ep0-ba{batch}-rank0.json" for batch in (1, 2, 3)
    }, "what is not uploaded is not deleted, however many are kept"
    assert upload(tmp_path / "run", s3.environment()).returncode == 0
    assert len(list((tmp_path / "run" / "traces").glob("*rank0.json"))) == 2


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torchs_own_traces_are_uploaded_too(tmp_path, s3):
    program = f"""
        import kinetoscope
        with kinetoscope.profile("run", torch=kinetoscope.TorchProfiler(), upload_to="s3://{BUCKET}/torch") as profiler:
            for batch in profiler.batches(range(14)):
                with profiler.marker("train"):
                    pass
    """
    done = run(tmp_path, program, s3.environment(), "torch", TORCH_MODULES)
    stored = [name.rpartition("/")[2] for name in s3.names() if name.startswith("torch/run/")]
    assert sorted(stored) == ["ep0-ba12-rank0.json.gz", "merged_trace.json.gz", "rank0.12.pt.trace.json"], done.stderr


def test_an_upload_that_another_process_is_busy_with_is_not_called_done(tmp_path, s3):
    run_folder = queue(tmp_path, "busy", 1000)
    with (run_folder / build_queue_name(0) / "lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = upload(run_folder, s3.environment())
    assert (done.returncode, "Another process is uploading what rank 0 left" in done.stdout) == (1, True)
    assert upload(run_folder, s3.environment()).returncode == 0


def _wait_for_queue(run_folder):
    """The waiting files, once all files of the killed process are in the queue."""
    listed = [json.loads(line) for line in (run_folder / "traces/.manifest/rank0.jsonl").read_text().splitlines()]
    waiting = read_queue(run_folder, 0)
    assert len(waiting) >= len([line for line in listed if line["type"] == "finished"]) - 1
    return waiting


def _end_uploads(run_folder):
    """End the upload process of a killed run, as the end of its machine would, even if it was only just forked and does
    not have its own name yet."""
    while left := [process for process in Path("/proc").glob("[0-9]*") if _is_at_work_in(run_folder.parent, process)]:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)
        time.sleep(0.01)
    for path in run_folder.glob(
        f"{build_queue_name(0)}/lock"
    ):  # held until the last thread of the killed process has ended
        with path.open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


def _is_at_work_in(folder, process):
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return (process / "cwd").resolve() == folder and state != "Z"
    except OSError:
        return False


def _all_text(folder):
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


def test_recovered_traces_are_uploaded_before_anything_is_deleted(tmp_path, s3):
    environment = s3.environment("http://127.0.0.1:9")
    process = start(tmp_path, f"train(10**6, upload_to='s3://{BUCKET}/recovered')", environment, "recovered")
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    _end_uploads(tmp_path / "run")
    waiting = [entry.file.name for entry in read_queue(tmp_path / "run", 0)]
    done = command(environment, "recover", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "run" / "traces").glob("*rank0.json")} >= set(waiting)
    recovered = {Path(line.split()[-1]).name for line in done.stdout.splitlines() if "Written to" in line}
    expected = {*waiting, *recovered, "merged_trace.json"}
    assert f"Still to be uploaded: {len(expected)} files. To see them: kinetoscope upload run" in done.stdout
    assert (tmp_path / "run" / "traces" / "merged_trace.json").exists()
    assert upload(tmp_path / "run", s3.environment()).returncode == 0
    assert {f"recovered/recovered/traces/{name}" for name in expected} <= set(s3.names())


def test_a_merged_trace_that_is_finished_only_after_the_run_is_uploaded_as_well(tmp_path, s3):
    environment = s3.environment() | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    # The merging process takes longer than that to start.
    done = run(tmp_path, f"train(1, upload_to='s3://{BUCKET}/runs', close_timeout_s=0.1)", environment, "late")
    assert "continues in process" in done.stderr
    merged = "runs/late/traces/merged_trace.json"
    assert merged not in s3.names()
    wait_for(lambda: merged in s3.names(), every_s=STORE_S)
    assert s3.content(merged) == (tmp_path / "run" / "traces" / "merged_trace.json").read_bytes()
