"""Thousands of threads that record a span and end: no span is lost, and no memory stays in use."""

import multiprocessing
import os
import re
import signal
import threading
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope import Profiler, ProfilerAction
from kinetoscope.spool.contents import read_spool_folder
from kinetoscope.spool.folders import find_spool_folders
from kinetoscope.spool.record import RECORD_BYTES
from kinetoscope.testing import MemoryTraceHandler
from support.fork_server import run_program

# AddressSanitizer keeps 8 MiB of freed memory.
MAX_KIB = 9 * 1024 if "libasan" in os.environ.get("LD_PRELOAD", "") else 1024


# One thread after the other, so many in each window. Spans are counted when they are saved.
ONE_AFTER_THE_OTHER = """
import sys, threading
from kinetoscope import Profiler, ProfilerAction, TraceHandler

folder, per_window, num_threads = sys.argv[1], int(sys.argv[2]), 10_000

class Count(TraceHandler):
    num_spans = num_dropped = num_unlike = 0

    def process_cycle(self, cycle):
        for thread in cycle.threads:
            self.num_dropped += thread.num_dropped
            names = [cycle.names[record.name].name for record in thread.records()]
            self.num_spans += names.count("short")
            self.num_unlike += "short" in names and (names != ["short"] or not thread.name.startswith("Thread-"))

def resident_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

def num_maps():
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)

def record():
    with short:
        pass

def schedule(state):
    is_last = (int(state.timestamp.batch) + 1) % (per_window // 100) == 0
    return ProfilerAction.ACTIVE_AND_SAVE if is_last else ProfilerAction.ACTIVE

count = Count()
with Profiler(schedule, count, spool_folder=folder or False, strict=True) as profiler:
    short = profiler.marker("short")
    for batch in profiler.batches(range(num_threads // 100)):
        for _ in range(100):
            thread = threading.Thread(target=record)
            thread.start()
            thread.join()
        if batch == 19:
            assert profiler.lifecycle.drain(60)  # what waits for the writer thread is not what stays
            before, maps_before = resident_kib(), num_maps()
    assert profiler.lifecycle.drain(60)
    grown, more_maps = resident_kib() - before, num_maps() - maps_before
print(count.num_spans, count.num_dropped, count.num_unlike, grown, more_maps)
"""


@pytest.mark.parametrize("per_window", [100, 1_000_000])
@pytest.mark.parametrize("keeps", ["in memory", "in files"])
def test_ten_thousand_short_threads_lose_no_span_and_leave_nothing_in_memory(tmp_path, keeps, per_window):
    done = run_program(ONE_AFTER_THE_OTHER, tmp_path if keeps == "in files" else "", per_window)
    assert done.returncode == 0, done.stderr
    num_spans, num_dropped, num_unlike, grown_kib, more_maps = map(int, done.stdout.split())
    assert (num_spans, num_dropped, num_unlike) == (10_000, 0, 0)
    # The window is still open, so it has a record and a mark of each of the 8,000 threads since the first measurement.
    recorded_kib = 0 if per_window < 10_000 else 8_000 * 2 * RECORD_BYTES // 1024
    assert grown_kib - recorded_kib <= MAX_KIB
    assert more_maps < 200


AT_ONCE = """
import queue, sys, threading
from kinetoscope import Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

folder, num_threads = sys.argv[1], int(sys.argv[2])
threading.stack_size(64 << 10)
begin, end = threading.Lock(), threading.Lock()  # each thread lets the next one through: a barrier wakes all for each
recorded = queue.SimpleQueue()
handler = MemoryTraceHandler()

def record():
    with begin:
        pass
    with short:
        pass
    recorded.put(1)
    with end:
        pass

always = lambda state: ProfilerAction.ACTIVE
with Profiler(always, handler, spool_folder=folder or False, live_bytes_max=32 << 20) as profiler:
    short = profiler.marker("short")
    threads = [threading.Thread(target=record) for _ in range(num_threads)]
    with end:
        with begin:
            for thread in threads:
                thread.start()
        for thread in threads:
            recorded.get()
    for thread in threads:
        thread.join()
dropped = sum(thread.num_dropped for cycle in handler.cycles for thread in cycle.threads)
print(len(handler.spans("short")), dropped)
"""


# With files there are fewer threads, since each takes ten milliseconds on a busy disk. Files of 256 KiB would not fit.
@pytest.mark.parametrize(("keeps", "num"), [("in memory", 1500), ("in files", 300)])
def test_threads_that_run_all_at_once_share_the_space_and_lose_no_span(tmp_path, keeps, num):
    done = run_program(AT_ONCE, tmp_path if keeps == "in files" else "", num)
    assert done.stdout == f"{num} 0\n", done.stderr


# Each span is named after the thread that records it. Some threads have ended, others are inside a span.
KILLED = """
import os, sys, threading
from kinetoscope import Profiler, ProfilerAction

profiler = Profiler(lambda state: ProfilerAction.ACTIVE, [], spool_folder=sys.argv[1]).start()
wait, ready = threading.Event(), threading.Barrier(9)

def record():
    name = threading.current_thread().name
    for _ in range(int(name[-1])):
        with profiler.marker("of " + name):
            pass

def stay():
    record()
    with profiler.marker("of " + threading.current_thread().name):
        ready.wait()
        wait.wait()

for number in range(2000):
    thread = threading.Thread(target=record, name=f"a thread that ends {number}")
    thread.start()
    thread.join()
for number in range(8):
    threading.Thread(target=stay, name=f"one that stays {number}", daemon=True).start()
ready.wait()
os.kill(os.getpid(), 9)
"""


def test_after_a_kill_every_span_is_found_with_its_recording_thread(tmp_path):
    assert run_program(KILLED, tmp_path).returncode == -signal.SIGKILL
    (folder,) = find_spool_folders(tmp_path)
    (process,) = read_spool_folder(folder).processes
    threads = {track.name: track for track in process.tracks if re.search(r"\d$", track.name)}
    for name, track in threads.items():
        own = [process.names[record.name].name for record in (*track.records(), *track.open_spans)]
        assert set(own) == {f"of {name}"}
        assert len(own) == int(name[-1]) + ("stays" in name)
    assert len(threads) == 1800 + 8  # every tenth thread that ended had recorded nothing
    assert len(list(folder.iterdir())) < 100


def record_on_threads(folder):
    for number in range(300):
        thread = threading.Thread(target=record_m, name=f"short {number}")
        thread.start()
        thread.join()
    assert len(list(Path(folder).glob(f"live/*/{os.getpid()}-*"))) < 30


def record_m():
    with kinetoscope.marker("m"):
        pass


def test_short_threads_of_a_worker_process_share_files_and_have_tracks_of_their_own(tmp_path):
    handler = MemoryTraceHandler()
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler, spool_folder=tmp_path, strict=True):
        worker = multiprocessing.get_context("fork").Process(target=record_on_threads, args=(tmp_path,), name="worker")
        worker.start()
        worker.join()
    assert worker.exitcode == 0
    threads = {thread.name: thread.num_records for cycle in handler.cycles for thread in cycle.threads}
    assert {f"worker: short {number}": 1 for number in range(300)}.items() <= threads.items()


def test_dropped_records_are_counted_in_the_log(tmp_path, caplog):
    handler = MemoryTraceHandler()
    with Profiler(
        lambda state: ProfilerAction.ACTIVE, handler, spool_folder=tmp_path, live_bytes_max=1 << 20
    ) as profiler:
        marker = profiler.marker("m")
        for _ in range(100_000):
            with marker:
                pass
    num_dropped = 100_000 - len(handler.spans("m"))
    assert num_dropped > 0
    (message,) = [record.getMessage() for record in caplog.records if "live_bytes_max" in record.getMessage()]
    assert f"{num_dropped:,} records found no space" in message


def fill_up_and_wait(is_full, may_end):
    for _ in range(50_000):
        record_m()
    is_full.set()
    may_end.wait()


def test_records_that_a_worker_dropped_are_counted_in_their_own_window_only(tmp_path, monkeypatch):
    monkeypatch.setattr("kinetoscope.recording.markers.native_recorder._CHILD_LIMIT_BYTES", 512 << 10)
    context = multiprocessing.get_context("fork")
    is_full, may_end = context.Event(), context.Event()
    handler = MemoryTraceHandler()
    with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, handler, spool_folder=tmp_path) as profiler:
        worker = context.Process(target=fill_up_and_wait, args=(is_full, may_end))
        for batch in profiler.batches(range(2)):
            if batch == 0:
                worker.start()
                assert is_full.wait(60)
            else:
                profiler.lifecycle.drain(60)
        may_end.set()
        worker.join()
    first, second = ([thread.num_dropped for thread in cycle.threads] for cycle in handler.cycles[:2])
    assert sum(first) == 50_000 - len(handler.spans("m"))
    assert sum(first) > 0
    assert sum(second) == 0


# -- profilers -------------------------------------------------------------------------------------------------------

MANY_PROFILERS = """
import sys
from kinetoscope import Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

def resident_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

def profile():
    handlers = [MemoryTraceHandler()] if sys.argv[1] == "handler" else []
    folder = sys.argv[2] if sys.argv[1] == "folder" else False
    with Profiler(lambda state: ProfilerAction.ACTIVE, handlers, spool_folder=folder, strict=True) as profiler:
        with profiler.marker("m"):
            pass

first, last = int(sys.argv[3]), int(sys.argv[4])
for number in range(last):
    if number == first:
        before = resident_kib()
    profile()
print(resident_kib() - before)
"""


# With a folder there are fewer of them, since each takes tens of milliseconds on a busy disk.
@pytest.mark.parametrize(("kind", "first", "last"), [("plain", 200, 1000), ("handler", 200, 1000), ("folder", 50, 150)])
def test_profilers_that_are_closed_leave_nothing_in_memory(tmp_path, kind, first, last):
    done = run_program(MANY_PROFILERS, kind, tmp_path, first, last)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= MAX_KIB


def test_a_closed_profiler_that_is_still_referenced_holds_no_space_for_records(tmp_path):
    def used_bytes(profiler):
        return profiler.run.recorder.used_bytes

    with Profiler(lambda state: ProfilerAction.ACTIVE, spool_folder=False) as in_memory:
        with in_memory.marker("m"):
            pass
    with Profiler(lambda state: ProfilerAction.ACTIVE, spool_folder=tmp_path) as in_files:
        with in_files.marker("m"):
            pass
    assert used_bytes(in_memory) == used_bytes(in_files) == 0
