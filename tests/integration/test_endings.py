"""However a run ends, the window so far is a valid trace, and nothing of ours stays behind. Real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from support.fork_server import run_command, run_program, run_with_torch
from support.trace_processor.trace_processor import load

PRELUDE = """
import os, signal, sys, time, threading
import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
def always(state): return ProfilerAction.ACTIVE
folder = sys.argv[1]
"""


def start(tmp_path, program, *arguments):
    script = tmp_path / "program.py"
    script.write_text(PRELUDE + textwrap.dedent(program))
    command = [sys.executable, str(script), str(tmp_path / "traces"), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, **pipes, text=True, cwd=tmp_path)


def finish(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def run(tmp_path, program, run_alone=run_program):
    done = run_alone(PRELUDE + textwrap.dedent(program), tmp_path / "traces", folder=tmp_path, finalizes=True)
    return done.returncode, done.stdout, done.stderr


def span_names(tmp_path, pattern="*rank0*.json"):
    found = []
    for path in sorted((tmp_path / "traces").glob(pattern)):
        with load(path) as trace:
            assert trace.errors() == {}
        found += [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    return found


def test_sigterm_in_mid_window_saves_it_and_then_kills_the_process_as_it_would_have(tmp_path):
    process = start(
        tmp_path,
        """
        with Profiler(always, JSONTraceHandler(folder)) as profiler:
            for batch in profiler.batches(range(10**6)):
                with profiler.marker("train"):
                    time.sleep(0.01)
                if batch == 5:
                    print("ready", flush=True)
        """,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    status, _, err = finish(process)
    assert status == -signal.SIGTERM, err
    assert span_names(tmp_path).count("train") >= 5
    assert (tmp_path / "traces" / "merged_trace.json").exists()


def test_sigterm_leaves_a_users_own_handler_alone(tmp_path):
    status, out, _ = run(
        tmp_path,
        """
        signal.signal(signal.SIGTERM, lambda *a: print("mine", flush=True))
        with Profiler(always, JSONTraceHandler(folder)) as profiler:
            os.kill(os.getpid(), signal.SIGTERM)
        """,
    )
    assert (status, out) == (0, "mine\n")


@pytest.mark.parametrize(
    ("ending", "expected"),
    [("raise ValueError('diverged')", 1), ("sys.exit(3)", 3), ("raise KeyboardInterrupt", -signal.SIGINT)],
)
def test_an_error_in_the_loop_leaves_the_window_so_far_and_is_not_swallowed(tmp_path, ending, expected):
    status, _, err = run(
        tmp_path,
        f"""
        with Profiler(always, JSONTraceHandler(folder)) as profiler:
            for batch in profiler.batches(range(10)):
                with profiler.marker("train"):
                    if batch == 4:
                        {ending}
        """,
    )
    assert status == expected, err
    assert span_names(tmp_path).count("train") == 5


def test_a_profiler_that_was_not_closed_is_closed_at_exit(tmp_path):
    status, _, err = run(
        tmp_path,
        """
        profiler = Profiler(always, JSONTraceHandler(folder)).start()
        for batch in profiler.batches(range(3)):
            with profiler.marker("train"):
                pass
        """,
    )
    assert status == 0, err
    assert span_names(tmp_path).count("train") == 3


def test_torchs_operators_are_saved_at_exit_if_the_profiler_was_not_closed(tmp_path):
    pytest.importorskip("torch")
    status, _, err = run(
        tmp_path,
        """
        import torch
        from kinetoscope import TorchProfiler
        sources = [TorchProfiler(folder + "/../torch_traces")]
        profiler = Profiler(always, JSONTraceHandler(folder), sources=sources).start()
        for batch in profiler.batches(range(3)):
            with profiler.marker("train"):
                torch.ones(3) + 1
        """,
        run_with_torch,
    )
    assert status == 0, err
    names = span_names(tmp_path)
    assert (names.count("train"), names.count("aten::add")) == (3, 3)


def test_forked_child_saves_nothing_shares_no_track_and_dies_of_sigterm(tmp_path):
    status, out, err = run(
        tmp_path,
        """
        with Profiler(always, JSONTraceHandler(folder)) as profiler:
            marker, (begun, begin) = profiler.marker("train"), os.pipe()
            for batch in profiler.batches(range(2)):
                with marker:
                    if (child := os.fork()) == 0:
                        with marker:
                            os.write(begin, b"x")
                            time.sleep(60)
                        os._exit(0)
                    os.read(begun, 1)
                    os.kill(child, signal.SIGTERM)
                    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    assert status == 0, err
    assert out.split() == ["-15", "-15"]
    assert [path.name for path in (tmp_path / "traces").glob("ep*")] == ["ep1-ba2-rank0.json"]
    trace = json.loads((tmp_path / "traces" / "ep1-ba2-rank0.json").read_text())
    main = {event["tid"] for event in trace["traceEvents"] if event["name"] == "event/batch"}
    on_main = [event for event in trace["traceEvents"] if event["name"] == "train" and event["tid"] in main]
    assert len(on_main) == 2
    # Spans that a child itself recorded, as a DataLoader's worker does, are on tracks of their own.
    assert span_names(tmp_path).count("train") == 4


def test_a_forked_child_may_have_a_profiler_of_its_own(tmp_path):
    code, _, err = run(
        tmp_path,
        """
        library = kinetoscope.marker("library")
        with Profiler(always, JSONTraceHandler(folder)) as profiler:
            for batch in profiler.batches(range(3)):
                if batch == 1 and os.fork() == 0:
                    assert kinetoscope.active_profiler() is None
                    with Profiler(always, JSONTraceHandler("own/traces")) as own:
                        for _ in own.batches(range(2)):
                            with own.marker("of the child"), library:
                                pass
                    sys.exit()
                with library:
                    pass
        os.wait()
        """,
    )
    assert code == 0, err
    child = json.loads((tmp_path / "own" / "traces" / "merged_trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in child].count("of the child") == 2
    assert [event["name"] for event in child].count("library") == 2
    assert span_names(tmp_path, "merged_trace.json").count("library") == 3
    assert "of the child" not in span_names(tmp_path, "merged_trace.json")


def test_child_forked_in_a_gc_pause_between_markers_runs_and_exits_normally(tmp_path):
    code, out, err = run(
        tmp_path,
        """
        import contextlib, gc
        is_parent, forking, statuses = True, False, []
        def fork(phase, info):
            global is_parent, forking
            if forking or not is_parent:
                return
            forking = True
            if child := os.fork():
                statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                forking = False
            else:
                is_parent = False
        with Profiler(always, JSONTraceHandler(folder)) as profiler:
            marker = profiler.marker("train")
            with contextlib.ExitStack() as held:
                threshold = gc.get_threshold()
                gc.callbacks.append(fork)
                gc.set_threshold(1)
                with marker:  # the first of a thread, which makes the recorder allocate
                    marker.start()
                    held.enter_context(marker)
                gc.callbacks.remove(fork)
                gc.set_threshold(*threshold)
            marker.finish()
            if not is_parent:
                os._exit(0)
        print(set(statuses) - {0})
        """,
    )
    assert (code, out) == (0, "set()\n"), err


def test_a_forked_child_of_a_run_that_is_watched_for_hangs_ends(tmp_path):
    code, out, err = run(
        tmp_path,
        """
        with kinetoscope.profile(folder, torch=False, system=False, hangs=True) as profiler:
            for batch in profiler.batches(range(3)):
                if os.fork() == 0:
                    signal.alarm(60)
                    sys.exit(3)  # at its end Python waited for faulthandler's timer, which only the parent had
                print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
        """,
    )
    assert (code, out) == (0, "3\n3\n3\n"), err


def test_marker_span_started_before_a_fork_may_finish_in_the_child_too(tmp_path):
    code, out, err = run(
        tmp_path,
        """
        marker = kinetoscope.marker("train")
        with Profiler(always, JSONTraceHandler(folder)):
            marker.start()
            if (child := os.fork()) == 0:
                marker.start()  # by what the child itself does
                marker.finish()
                marker.start()
            else:
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            marker.finish()
        """,
    )
    assert (code, out) == (0, "0\n"), err


@pytest.fixture
def small_disk(tmp_path):
    """The folder of traces is on a file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    traces = tmp_path / "traces"
    traces.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(traces)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    yield traces
    subprocess.run(["umount", str(traces)], check=True)


def recover(tmp_path):
    return run_command("recover", tmp_path)


def test_a_full_disk_does_not_stop_training_and_recover_finds_the_unsaved_windows(tmp_path, small_disk):
    status, out, err = run(
        tmp_path,
        """
        schedule = kinetoscope.cyclic_schedule(warmup=0, active=1, repeat=0)
        with Profiler(schedule, JSONTraceHandler(folder, merged_trace_filename=None)) as profiler:
            for batch in profiler.batches(range(20)):
                for n in range(500):
                    with profiler.marker("train"):
                        pass
        print("trained", profiler.state.timestamp.batch)
        """,
    )
    assert (status, out.split()) == (0, ["trained", "20"])
    assert "No space left" in err
    assert [path for path in small_disk.iterdir() if "partial" in path.name] == []
    num_saved = span_names(tmp_path).count("train")
    assert 0 < num_saved < 20 * 500
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    assert recover(tmp_path).returncode == 0
    assert span_names(tmp_path).count("train") == 20 * 500
    assert list((tmp_path / "live").glob("*")) == []


@pytest.fixture
def small_run(tmp_path):
    """The folder of a run, with its spool folder in it, on a file system of 3 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


FILL_THE_DISK = """
import resource
schedule = kinetoscope.cyclic_schedule(warmup=0, active=1, repeat=0)
handler = JSONTraceHandler("small/traces", merged_trace_filename=None)
with Profiler(schedule, handler, spool_folder="small") as profiler:
    for batch in profiler.batches(range({num_windows})):
        for n in range(10_000):
            with profiler.marker("train"):
                pass
        {after}
"""


def parse_num_records(err, what):
    """Return the number of records that a log reports for a location."""
    found = re.search(rf"([0-9,]+) records? (?:is|are) {what}", err)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.parametrize("num_windows", [8, 16])
def test_full_disk_report_separates_records_on_disk_from_those_in_memory(tmp_path, small_run, num_windows):
    status, _, err = run(tmp_path, FILL_THE_DISK.format(num_windows=num_windows, after=""))
    assert status == 0, err
    on_disk, in_memory = parse_num_records(err, "on disk"), parse_num_records(err, "in memory only")
    assert bool(on_disk) == bool(re.search(r": kinetoscope recover \S+$", err, re.MULTILINE)), err
    disk = os.statvfs(small_run)
    if in_memory:
        assert disk.f_bavail < disk.f_blocks / 4
    num_saved = count_in(small_run, "train")
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_run)], check=True)
    done = run_command("recover", small_run)
    # Records that are lost are missing for `recover` where not even the log of windows could be written.
    is_loss_named = in_memory > 0 and "records missing" in done.stderr
    assert done.returncode == 0 or is_loss_named, err + done.stderr
    num_found = count_in(small_run, "train")
    all_spans = num_windows * 10_000
    # Each window has a few records of its own: of the batch, of the wait for it, of the saves.
    assert all_spans - in_memory <= num_found <= all_spans - in_memory + 20 * num_windows
    assert abs(num_found - num_saved - on_disk) <= 20 * num_windows
    assert (num_found < all_spans) == (in_memory > 0)


def test_after_a_full_disk_has_space_again_a_kill_loses_no_record(tmp_path, small_run):
    after = """if batch == 12:
            assert profiler.lifecycle.drain(60)
            subprocess.run(["mount", "-o", "remount,size=200m", "small"], check=True)
        if batch == 15:
            assert profiler.lifecycle.drain(60)
            os.kill(os.getpid(), signal.SIGKILL)
"""
    status, _, err = run(tmp_path, "import subprocess\n" + FILL_THE_DISK.format(num_windows=16, after=after))
    assert status == -signal.SIGKILL, err
    assert run_command("recover", small_run).returncode == 0
    assert count_in(small_run, "train") == 16 * 10_000


def count_in(run_folder, name):
    traces = [json.loads(path.read_text()) for path in (run_folder / "traces").glob("ep*.json")]
    return sum(event["ph"] == "X" and event["name"] == name for trace in traces for event in trace["traceEvents"])


def test_a_disk_that_is_full_for_a_while_loses_no_span(tmp_path, small_disk):
    status, _, err = run(
        tmp_path,
        """
        def room():
            disk = os.statvfs(folder)
            return disk.f_bavail * disk.f_frsize

        def fill():
            with open(folder + "/.filler", "wb", buffering=0) as file:
                while room():
                    file.write(bytes(room()))

        schedule = kinetoscope.cyclic_schedule(warmup=0, active=1, repeat=0)
        with Profiler(schedule, JSONTraceHandler(folder, merged_trace_filename=None)) as profiler:
            for batch in profiler.batches(range(20)):
                if batch == 5:
                    assert profiler.lifecycle.drain(60)
                    fill()
                if batch == 15:
                    assert profiler.lifecycle.drain(60)
                    os.remove(folder + "/.filler")
                for n in range(50):
                    with profiler.marker("train"):
                        pass
        """,
    )
    assert status == 0, err
    assert err.count("could not save") == 1
    assert span_names(tmp_path).count("train") == 20 * 50
    assert len(list(small_disk.glob("ep*.json"))) == 20
    assert not (tmp_path / "live").exists()


def test_a_kill_while_a_cycle_waits_to_be_saved_again_loses_none(tmp_path):
    status, _, err = run(
        tmp_path,
        """
        schedule = kinetoscope.cyclic_schedule(warmup=0, active=1, repeat=0)
        with Profiler(schedule, JSONTraceHandler(folder, merged_trace_filename=None)) as profiler:
            for batch in profiler.batches(range(10)):
                if batch == 3:
                    assert profiler.lifecycle.drain(60)
                    os.rename(folder, folder + "-aside")
                    open(folder, "w").close()
                if batch == 9:
                    assert profiler.lifecycle.drain(60)
                    os.remove(folder)
                    os.rename(folder + "-aside", folder)
                    os.kill(os.getpid(), signal.SIGKILL)
                for n in range(50):
                    with profiler.marker("train"):
                        pass
        """,
    )
    assert status == -signal.SIGKILL, err
    assert span_names(tmp_path).count("train") == 3 * 50
    assert recover(tmp_path).returncode == 0
    assert span_names(tmp_path).count("train") == 9 * 50


BLOCKED_SAVE = """
class Blocked(JSONTraceHandler):
    def process_cycle(self, cycle):
        print("saving", flush=True)
        time.sleep(600)

count = 0
try:
    with Profiler(always, Blocked(folder), spool_folder=os.path.dirname(folder)) as profiler:
        while True:
            with profiler.marker("train"):
                count += 1
            if count == 1000:
                print("ready", flush=True)
except BaseException as error:
    library_marker = kinetoscope.marker("never recorded")
    with Profiler(always):
        print(count, type(error).__name__, signal.getsignal(signal.SIGTERM) != signal.SIG_DFL, flush=True)
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print(is_default, signal.getsignal(signal.SIGTERM).name, flush=True)
    raise
"""


# Presses Ctrl-C in training and while the run ends.
IGNORING = """
class Pressing(JSONTraceHandler):
    def process_cycle(self, cycle):
        os.kill(os.getpid(), signal.SIGINT)
        super().process_cycle(cycle)
with Profiler(always, Pressing(folder)) as profiler:
    for batch in profiler.batches(range(3)):
        with profiler.marker("train"):
            os.kill(os.getpid(), signal.SIGINT)
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, flush=True)
"""


# Presses Ctrl-C while the run is saved, after the program has ended.
AT_EXIT = """
class Pressing(JSONTraceHandler):
    def close(self, state, run):
        signal.raise_signal(signal.SIGINT)
profiler = Profiler(always, Pressing(folder))
profiler.start()
for batch in profiler.batches(range(3)):
    with profiler.marker("train"):
        pass
"""


def test_ctrl_c_while_a_run_is_saved_at_exit_ends_the_wait_without_a_word_of_pythons(tmp_path):
    status, _, err = run(tmp_path, AT_EXIT)
    assert status == 0
    assert "KeyboardInterrupt" not in err
    assert span_names(tmp_path).count("train") == 3


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.5])
def test_ctrl_c_twice_ends_a_slow_save_and_recover_has_every_span(tmp_path, delay_s):
    process = start(tmp_path, BLOCKED_SAVE)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "saving\n"
    time.sleep(delay_s)  # wherever the process is by then
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert status == -signal.SIGINT, err
    count, *rest = out.split()
    assert rest == ["KeyboardInterrupt", "True", "True", "SIG_DFL"]
    assert err.count("Traceback") == 1, "where training was"
    assert "kinetoscope recover" in err
    assert recover(tmp_path).returncode == 0
    assert abs(span_names(tmp_path).count("train") - int(count)) <= 1  # Ctrl-C may come between the span and the count
    assert list((tmp_path / "live").glob("*")) == []


def test_job_started_with_sigint_ignored_continues_and_is_saved(tmp_path):
    program = f"""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.execv(sys.executable, [sys.executable, "-c", {PRELUDE + IGNORING!r}, folder])
    """
    status, out, err = run(tmp_path, program)
    assert (status, out) == (0, "True\n"), err
    assert span_names(tmp_path).count("train") == 3


def test_a_sigterm_that_came_while_the_run_ended_ends_the_process_afterwards(tmp_path):
    process = start(tmp_path, BLOCKED_SAVE)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "saving\n"
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)  # the save continues
    process.send_signal(signal.SIGINT)
    status, _, err = finish(process)
    assert status == -signal.SIGTERM, err


def test_a_rank_that_died_does_not_keep_the_others_from_their_merged_trace(tmp_path):
    program = """
    os.environ |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": sys.argv[2], "LOCAL_RANK": sys.argv[2]}
    with Profiler(always, JSONTraceHandler(folder)) as profiler:
        for batch in profiler.batches(range(3)):
            with profiler.marker("train"):
                pass
            if sys.argv[2] == "1":
                os.kill(os.getpid(), signal.SIGKILL)
    """
    second = start(tmp_path, program, "1")
    assert finish(second)[0] == -signal.SIGKILL
    began = time.monotonic()
    status, _, err = finish(start(tmp_path, program, "0"))
    assert status == 0, err
    assert time.monotonic() - began < 8
    assert span_names(tmp_path, "merged_trace.json").count("train") == 3


def test_no_thread_that_writes_starts_before_there_is_something_to_write(tmp_path):
    _, out, _ = run(
        tmp_path,
        """
        with Profiler(lambda state: ProfilerAction.SKIP, JSONTraceHandler(folder)) as profiler:
            for batch in profiler.batches(range(10)):
                pass
            print(sorted(thread.name for thread in threading.enumerate()))
        """,
    )
    assert out == "['MainThread', 'kinetoscope-watch']\n"
    assert [path.name for path in Path(tmp_path / "traces").iterdir()] == [".manifest"]
