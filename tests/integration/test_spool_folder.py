"""The spool folder with real processes: killed, forked, spawned, on a full disk."""

import json
import logging
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.core.paths.network import is_on_network
from kinetoscope.spool.contents import read_spool_folder
from kinetoscope.spool.record import Kind, record_columns
from kinetoscope.testing import MemoryTraceHandler
from support.fork_server import KINETOSCOPE_MODULES, start_forked

ALWAYS = lambda state: ProfilerAction.ACTIVE  # noqa: E731


def find_spool_folders(run_folder):
    return [path for path in sorted(Path(run_folder, "live").glob("*")) if path.is_dir()]


# -- kill -9 -----------------------------------------------------------------------------------------------------

# Each thread writes into a pipe, which outlives the process, how many spans it has finished.
VICTIM = """
import os, sys, threading
from kinetoscope import Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

folder, num_threads, num_quiet = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
reports = os.open(folder + "/reports", os.O_WRONLY)
profiler = Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), spool_folder=folder).start()
outer, inner = profiler.marker("outer"), profiler.marker("inner")

def work(number):
    count = 0
    with outer:
        while True:
            for _ in range(num_quiet):
                with inner:
                    count += 1
            os.write(reports, f"{number} {count}\\n".encode())

threads = [threading.Thread(target=work, args=(n,), name=f"w{n}") for n in range(num_threads)]
for thread in threads:
    thread.start()
"""


# The second number: how many spans a thread records before it reports. With many, chunks are spooled meanwhile.
@pytest.mark.parametrize(("num_threads", "num_quiet"), [(1, 50), (2, 50), (8, 50), (1, 30_000), (2, 15_000)])
@pytest.mark.parametrize("trial", range(int(os.environ.get("KINETOSCOPE_KILLS", "3"))))
def test_a_kill_loses_no_finished_span_and_tears_no_record(tmp_path, num_threads, num_quiet, trial):
    os.mkfifo(tmp_path / "reports")
    victim = start_forked((*KINETOSCOPE_MODULES, "kinetoscope.testing"), VICTIM, tmp_path, num_threads, num_quiet)
    reports = (tmp_path / "reports").open()
    reported = dict.fromkeys(range(num_threads), 0)
    random_source = random.Random(trial)
    for _ in range(num_threads * random_source.randrange(5, 60 if num_quiet < 1000 else 15)):
        number, count = reports.readline().split()
        reported[int(number)] = int(count)
    time.sleep(random_source.random() * 0.02)
    victim.kill()
    victim.wait()
    with reports:
        rest = reports.read()
    for line in rest.split("\n")[:-1]:
        number, count = line.split()
        reported[int(number)] = int(count)

    (folder,) = find_spool_folders(tmp_path)
    (process,) = read_spool_folder(folder).processes
    names = [name.name for name in process.names]
    tracks = {track.name: track for track in process.tracks}
    for number, count in reported.items():
        if not count:
            continue
        track = tracks[f"w{number}"]
        columns = record_columns(b"".join(part.read() for part in track.parts))
        begins, ends = columns.begin.tolist(), columns.end.tolist()
        assert count <= len(ends)
        assert {names[number] for number in set(columns.name)} == {"inner"}
        assert set(columns.kind) == {Kind.SPAN}
        assert all(end >= begin > 0 for begin, end in zip(begins, ends, strict=True))
        assert ends == sorted(ends)
        assert len(set(begins)) == len(begins)
        assert [names[span.name] for span in track.open_spans if span.depth == 0] == ["outer"]
        assert len(track.open_spans) <= 2


# -- a run that ends well ------------------------------------------------------------------------------------------


def test_a_clean_close_leaves_no_live_folder(tmp_path):
    handler = JSONTraceHandler(f"{tmp_path}/traces", merged_trace_filename=None)
    with Profiler(ALWAYS, handler, strict=True) as profiler:
        (folder,) = find_spool_folders(tmp_path)
        marker = profiler.marker("m")
        with marker:
            pass
        with marker:
            (process,) = read_spool_folder(folder).processes
            (track,) = process.tracks
            assert [process.names[record.name].name for record in track.records()] == ["m"]
            assert "m" in [process.names[span.name].name for span in track.open_spans]
    assert not (tmp_path / "live").exists()


def test_space_is_given_back_as_soon_as_a_cycle_is_saved(tmp_path):
    handler = JSONTraceHandler(f"{tmp_path}/traces", merged_trace_filename=None)

    def schedule(state):
        return ProfilerAction.ACTIVE_AND_SAVE

    with Profiler(schedule, handler, strict=True) as profiler:
        (folder,) = find_spool_folders(tmp_path)
        marker = profiler.marker("m")
        for _ in profiler.batches(range(5)):
            with marker:
                pass
        profiler.lifecycle.services.delivery.writer.drain(10)
        assert len(list(folder.glob("*.chunk"))) <= 3


def test_live_folder_false_keeps_everything_in_memory(tmp_path):
    handler = JSONTraceHandler(f"{tmp_path}/traces", merged_trace_filename=None)
    with Profiler(ALWAYS, handler, spool_folder=False):
        assert not (tmp_path / "live").exists()


def test_records_without_space_are_dropped_and_the_trace_says_how_many(tmp_path):
    handler = JSONTraceHandler(f"{tmp_path}/traces", merged_trace_filename=None)
    with Profiler(ALWAYS, handler, live_bytes_max=1 << 20, strict=True) as profiler:
        marker = profiler.marker("m")
        released = threading.Event()
        profiler.lifecycle.services.delivery.writer.submit("Being slow", released.wait)
        for _ in range(60_000):
            marker.instant()
        released.set()
    (path,) = (tmp_path / "traces").glob("ep*.json")
    trace = json.loads(path.read_text())
    dropped = trace["kinetoscope"]["dropped"]
    assert dropped > 20_000
    assert sum(event["ph"] == "i" for event in trace["traceEvents"]) + dropped in range(60_000, 60_005)


# -- fork and spawn ------------------------------------------------------------------------------------------------


def test_a_forked_child_has_none_of_its_parents_events_and_harms_none(tmp_path):
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler, spool_folder=tmp_path, strict=True) as profiler:
        marker = profiler.marker("m")
        (folder,) = find_spool_folders(tmp_path)
        before = {path for path in folder.iterdir() if path.suffix != ".partial"}
        with marker:
            pass
        with marker:
            token = marker.begin()
            profiler.run.recorder.run_file = None  # a child that does not know the run
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    marker.end(token)
                    with marker:
                        marker.instant()
                    recorder = profiler.run.recorder
                    recorder.open_window()
                    recorder.action = 4
                    with marker:
                        pass
                    (track,) = recorder.close_window().threads()
                    status = 0 if track.num_records == 1 and track.tid == os.getpid() else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            marker.end(token)
            assert before <= set(folder.iterdir())
    assert len(handler.spans("m")) == 3
    assert handler.cut_spans() == []


def test_a_span_around_a_fork_is_left_by_both_processes():
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler, strict=True) as profiler:
        with profiler.marker("m"):
            child = os.fork()
            if child:
                os.waitpid(child, 0)
        if child == 0:
            os._exit(0)
    assert len(handler.spans("m")) == 1


def _record_in_child(queue):
    import kinetoscope

    with kinetoscope.marker("m"):
        queue.put(os.getpid())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_markers_work_in_children_however_they_were_started(tmp_path, method):
    context = multiprocessing.get_context(method)
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler, spool_folder=tmp_path, strict=True) as profiler:
        with profiler.marker("parent"):
            queue = context.SimpleQueue()
            child = context.Process(target=_record_in_child, args=(queue,))
            child.start()
            assert queue.get() == child.pid
            child.join()
    assert child.exitcode == 0
    assert sorted(name for name, _, _ in handler.spans()) == ["m", "parent"]


def test_children_of_an_earlier_runs_fork_server_record_into_the_current_run(tmp_path):
    context = multiprocessing.get_context("forkserver")
    for _ in range(2):
        handler, queue = MemoryTraceHandler(), context.SimpleQueue()
        with Profiler(ALWAYS, handler, spool_folder=tmp_path, strict=True):
            child = context.Process(target=_record_in_child, args=(queue,))
            child.start()
            child.join()
        assert [name for name, _, _ in handler.spans()] == ["m"]


# The server was started before the run, and may or may not have imported Kinetoscope.
EARLY_SERVER = """
import multiprocessing, sys
from tests_of_children import nothing, record_m

if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    if sys.argv[2] == "preloaded":
        context.set_forkserver_preload(["kinetoscope.recording.markers.marker"])
    context.Process(target=nothing).start()
    from kinetoscope import Profiler, ProfilerAction
    from kinetoscope.testing import MemoryTraceHandler

    handler = MemoryTraceHandler()
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler, spool_folder=sys.argv[1], strict=True):
        child = context.Process(target=record_m)
        child.start()
        child.join()
    print([name for name, _, _ in handler.spans()], child.exitcode)
"""

CHILDREN = """
def nothing():
    pass

def record_m():
    import kinetoscope

    with kinetoscope.marker("m"):
        pass
"""


@pytest.mark.parametrize("server", ["plain", "preloaded"])
@pytest.mark.parametrize("name", [b"run", b"caf\xe9 two\nlines\r"])
def test_children_of_a_fork_server_that_was_there_before_the_run_record_into_it(tmp_path, server, name):
    (tmp_path / "early.py").write_text(EARLY_SERVER)
    (tmp_path / "tests_of_children.py").write_text(CHILDREN)
    command = [sys.executable, tmp_path / "early.py", os.fsencode(tmp_path) + b"/" + name, server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "['m'] 0\n", done.stderr


class MarkedDataset:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        import kinetoscope

        with kinetoscope.marker("decode", categories=("loader",)):
            kinetoscope.marker("size").counter({"bytes": index})
        return index


# A worker that is spawned imports torch again, which takes two seconds of processor time: so one has to do.
@pytest.mark.parametrize(("method", "num_workers"), [("fork", 2), ("spawn", 1)])
def test_dataloader_workers_record_into_the_run_as_tracks_of_their_own(tmp_path, method, num_workers):
    data = pytest.importorskip("torch.utils.data")
    handler = MemoryTraceHandler()
    loader = data.DataLoader(MarkedDataset(), batch_size=2, num_workers=num_workers, multiprocessing_context=method)

    with Profiler(ALWAYS, handler, spool_folder=tmp_path, strict=True) as profiler:
        for _ in profiler.batches(loader):
            pass
    tracks = {thread.name for cycle in handler.cycles for thread in cycle.threads}
    assert {f"DataLoader worker {worker}" for worker in range(num_workers)} <= tracks
    assert sorted(value for _, _, value in handler.counters()["size"]) == list(range(40))
    decoded = [name for cycle in handler.cycles for _, _, name in cycle.records() if name.name == "decode"]
    assert [name.categories for name in decoded] == [("loader",)] * 40
    assert not (tmp_path / "live").exists()


# -- folders that cannot be used -------------------------------------------------------------------------------------


def record_some(tmp_path, folder, num=100):
    handler = MemoryTraceHandler()
    with Profiler(ALWAYS, handler, spool_folder=folder, strict=True) as profiler:
        marker = profiler.marker("m")
        for _ in range(num):
            with marker:
                pass
        processes = [process for path in find_spool_folders(folder) for process in read_spool_folder(path).processes]
        num_live = sum(len(part) for process in processes for track in process.tracks for part in track.parts)
    assert len(handler.spans("m")) == num
    return num_live


def test_a_folder_that_cannot_be_made_gives_one_warning_and_loses_no_span(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "kinetoscope"):
        record_some(tmp_path, tmp_path / "file")
    (record,) = caplog.records
    assert "spool_folder=" in record.getMessage()


def test_spool_without_chunk_paths_gives_one_warning_and_loses_no_span(tmp_path, caplog):
    room = "/live/20261122T120000-1234567-01234567/1234567-1.run\0"
    longest = os.pathconf(tmp_path, "PC_PATH_MAX") - len(room)
    folder = Path((str(tmp_path) + ("/" + "d" * 200) * 40)[:longest])
    folder.mkdir(parents=True)
    with caplog.at_level(logging.WARNING, "kinetoscope"):
        record_some(tmp_path, folder)
    (record,) = caplog.records
    assert "File name too long" in record.getMessage()
    assert find_spool_folders(folder) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", mount], capture_output=True)
    if done.returncode:
        pytest.skip("this needs the right to mount")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_training_continues_on_a_full_disk_and_stored_records_are_readable(tmp_path, small_disk, caplog):
    num = 300_000  # they do not fit, however quickly the writer thread packs them to a third
    (small_disk / "file").write_bytes(bytes(1 << 20))
    with caplog.at_level(logging.WARNING, "kinetoscope"):
        num_live = record_some(tmp_path, small_disk, num=num)
    assert len([record for record in caplog.records if "spool_folder=" in record.getMessage()]) == 1
    assert 0 < num_live < num


def test_disk_that_is_full_from_the_start_gives_one_warning(tmp_path, small_disk, caplog):
    (small_disk / "file").write_bytes(bytes((2 << 20) - 4096 * 4))
    with caplog.at_level(logging.WARNING, "kinetoscope"):
        record_some(tmp_path, small_disk)
    assert len([record for record in caplog.records if "spool_folder=" in record.getMessage()]) == 1


def test_a_read_only_folder_gives_one_warning(tmp_path, small_disk, caplog):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with caplog.at_level(logging.WARNING, "kinetoscope"):
        record_some(tmp_path, small_disk)
    assert len([record for record in caplog.records if "spool_folder=" in record.getMessage()]) == 1


def test_network_file_systems_are_known_by_their_kind(tmp_path, monkeypatch):
    (tmp_path / "self").mkdir()
    (tmp_path / "filesystems").write_text("nodev\tnfs4\n\text4\n\txfs\n")
    (tmp_path / "self" / "mounts").write_bytes(
        b"server:/data /caf\xe9\\134040 nfs4 rw 0 0\n/dev/sda / ext4 rw 0 0\n"
        b"server:/data /data\\040one nfs4 rw 0 0\n/dev/sdb /data\\040one/local xfs rw 0 0\n"
    )
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert is_on_network(Path("/data one/runs/x"))
    assert not is_on_network(Path("/data one/local/x"))
    assert not is_on_network(Path("/data one more"))
    assert is_on_network(Path(os.fsdecode(b"/caf\xe9\\040/runs")))


# -- long runs -------------------------------------------------------------------------------------------------------

# Four million records take more than the folder may, and three million more than the memory may grow.
FOUR_MILLION = """
import os, sys, threading, time
from kinetoscope.recording.markers.native_recorder import NativeRecorder, NativeSpan

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

recorder = NativeRecorder()
recorder.open_folder(sys.argv[1], 0, 100 << 20)
wake, stop = threading.Event(), threading.Event()

def write():
    while not stop.is_set():
        wake.wait()
        wake.clear()
        recorder.prepare()

recorder.request = wake.set
writer = threading.Thread(target=write)
writer.start()
span = NativeSpan(recorder, recorder.names.intern("s"), 2)
recorder.open_window()
recorder.action = 2

def record(num):
    for _ in range(num // 100_000):
        for _ in range(100_000):
            with span:
                pass
        while wake.is_set():  # on a busy machine the writer comes later
            time.sleep(0.001)

record(1_000_000)
before = resident_bytes()
record(3_000_000)
grown = resident_bytes() - before
stop.set()
wake.set()
writer.join()
(thread,) = recorder.close_window().threads()
num_bytes = sum(os.path.getsize(file) for file in os.scandir(sys.argv[1]))
num_spans, before = 0, resident_bytes()
for part in thread.parts:
    num_spans += len(part.read()) // 32
grown = max(grown, resident_bytes() - before)
print(num_spans, thread.num_dropped, grown, num_bytes)
"""


def test_four_million_spans_that_are_drained_take_no_more_memory_than_one_million(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FOUR_MILLION, tmp_path], capture_output=True, text=True, check=True, timeout=120
    )
    total, dropped, grown, _ = map(int, done.stdout.split())
    assert total == 4_000_000
    assert dropped == 0
    assert grown < 40 << 20


def test_records_of_workers_are_read_once_in_the_window_they_belong_to(tmp_path):
    data = pytest.importorskip("torch.utils.data")
    handler = MemoryTraceHandler()
    loader = data.DataLoader(MarkedDataset(), batch_size=2, num_workers=2, multiprocessing_context="fork")

    def schedule(state):
        return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch % 5 == 4 else ProfilerAction.ACTIVE

    with Profiler(schedule, handler, spool_folder=tmp_path, strict=True) as profiler:
        for _ in profiler.batches(loader):
            pass
    values = [value for _, _, value in handler.counters()["size"]]
    assert len(set(values)) == len(values)
    assert len(values) >= 30  # a worker's spans between two windows are not recorded
    for cycle in handler.cycles:
        begins = [record.begin for _, record, name in cycle.records() if name.name == "decode"]
        assert all(cycle.begin.monotonic_ns <= begin <= cycle.end.monotonic_ns for begin in begins)
