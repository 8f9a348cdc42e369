"""`kinetoscope recover` on spool folders that are damaged: what cannot be read is named, and the rest is recovered."""

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kinetoscope.cli import main
from kinetoscope.spool.chunk import read_chunk
from support.trace_processor.trace_processor import load

NUM_MUTATED = int(os.environ.get("KINETOSCOPE_MUTATED_FOLDERS", "10"))
NUM_WORK = 26_000

# Two threads and a forked worker, a spool, and windows in all three states when the process is killed.
TRAIN = f"""
import os, sys, threading
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
def schedule(state):
    return ProfilerAction.ACTIVE if state.timestamp.batch % 2 else ProfilerAction.ACTIVE_AND_SAVE
with Profiler(schedule, JSONTraceHandler(sys.argv[1] + "/traces"), strict=True) as profiler:
    work, loss = profiler.marker("work"), profiler.marker("loss")
    def record(number):
        for _ in range(number):
            with work:
                pass
        loss.counter({{"train": 0.5, "test": 7}})
        loss.instant()
    for batch in profiler.batches(range(10)):
        record(10)
        if batch == 3:
            profiler.lifecycle.drain(30)
            profiler.lifecycle.services.delivery.writer.submit("Being slow", threading.Event().wait)
        if batch >= 4:
            thread = threading.Thread(target=record, args=(10,), name="beside")
            thread.start()
            thread.join()
            if os.fork() == 0:
                record(10)
                os._exit(0)
            os.wait()
        if batch == 7:
            record({NUM_WORK})
            profiler.run.recorder.prepare()
            record(10)
            with profiler.marker("open"):
                os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    done = subprocess.run([sys.executable, "-c", TRAIN, str(folder / "run")], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return folder / "run"


@pytest.fixture
def run(killed, tmp_path):
    """The folder of a killed run, which a test then damages."""
    return Path(shutil.copytree(killed, tmp_path / "run"))


def spool_folder(run):
    (folder,) = (run / "live").iterdir()
    return folder


def recover(run, *options):
    """Return the exit code of `kinetoscope recover`, and its output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main(["recover", str(run), *options])
    return code, output.getvalue()


class Event(msgspec.Struct, gc=False):
    ph: str
    name: str


class KinetoscopeHeader(msgspec.Struct):
    repaired: list[str]


class Trace(msgspec.Struct, rename={"events": "traceEvents"}):
    kinetoscope: KinetoscopeHeader
    events: list[Event]


def traces(run):
    return [msgspec.json.decode(path.read_bytes(), type=Trace) for path in (run / "traces").glob("ep*.json")]


def count_spans(run, name="work"):
    return sum(event.ph == "X" and event.name == name for trace in traces(run) for event in trace.events)


def notes(run):
    return [note for trace in traces(run) for note in trace.kinetoscope.repaired]


@pytest.fixture(scope="module")
def num_spans(killed, tmp_path_factory):
    """The number of spans if nothing is damaged."""
    run = Path(shutil.copytree(killed, tmp_path_factory.mktemp("whole") / "run"))
    code, output = recover(run)
    assert code == 0, output
    assert list(spool_folder(killed).glob("*.spool"))
    return count_spans(run)


def test_an_undamaged_live_folder_is_recovered_completely(num_spans):
    assert num_spans == 8 * 10 + 2 * 4 * 10 + NUM_WORK + 10


def stays(run, code, output):
    """Return whether the spool folder stays, which exit code and output must agree with."""
    is_there = (run / "live").exists()
    assert (code == 1) == is_there == ("not all that is in it is in the traces" in output), output
    return is_there


def file_of(run, suffix):
    """Return the largest file of a kind."""
    return max(spool_folder(run).glob(f"*{suffix}"), key=lambda path: len(path.read_bytes().replace(b"\0", b"")))


@pytest.mark.parametrize("suffix", [".names", ".track", ".chunk", ".spool", "windows.jsonl"])
@pytest.mark.parametrize("content", [b"", b"garbage", bytes(range(256)) * 300], ids=["empty", "short", "long"])
def test_file_of_random_bytes_is_named_and_the_others_are_recovered(run, num_spans, suffix, content):
    path = file_of(run, suffix)
    path.write_bytes(content)
    code, output = recover(run)
    stays(run, code, output)
    assert count_spans(run) >= 60
    if content and suffix != "windows.jsonl":
        assert path.name in output
        assert path.name in " ".join(notes(run))


def test_a_file_with_an_unknown_name_is_reported(run, num_spans):
    (spool_folder(run) / "mine.names").write_text("hello\n")
    code, output = recover(run)
    assert stays(run, code, output)
    assert "mine.names" in output
    assert count_spans(run) == num_spans


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
@pytest.mark.parametrize("name", ["77-1.chunk", "77-1.spool", "77-1.track", "77.names"])
def test_a_file_that_is_not_regular_is_named_and_not_read(run, num_spans, make, name):
    make(spool_folder(run) / name)
    code, output = recover(run)
    assert stays(run, code, output)
    assert name in output
    assert count_spans(run) == num_spans


def test_records_of_a_thread_without_its_track_file_are_recovered(run, num_spans):
    file_of(run, ".track").unlink()
    code, _ = recover(run)
    assert code == 0
    assert count_spans(run) == num_spans


def test_a_name_that_cannot_be_read_gets_another_one_and_no_span_is_lost(run, num_spans):
    for path in spool_folder(run).glob("*.names"):
        lines = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join(b"{" if b'"work"' in line else line for line in lines))
    code, output = recover(run)
    assert stays(run, code, output)
    number = next(int(word.strip("'.")) for word in output.split("unreadable name ")[1].split())
    assert count_spans(run, f"unreadable name {number}") + count_spans(run) == num_spans


def test_a_damaged_entry_of_a_spool_does_not_hide_later_ones(run, num_spans):
    path = file_of(run, ".spool")
    content = bytearray(path.read_bytes())
    second = content.find(b"KSSPOOL\0", 8)
    assert second > 0
    content[:4] = b"????"
    path.write_bytes(content)
    code, output = recover(run)
    assert stays(run, code, output)
    assert path.name in output
    assert num_spans - 9000 < count_spans(run) < num_spans


def test_a_spool_entry_that_claims_to_be_huge_is_left_out(run, num_spans):
    path = file_of(run, ".spool")
    content = bytearray(path.read_bytes())
    content[28:32] = b"\xff" * 4
    path.write_bytes(content)
    code, output = recover(run)
    assert stays(run, code, output)
    assert path.name in output
    assert num_spans - 9000 < count_spans(run) < num_spans


def test_files_of_another_version_are_named_and_stay_and_the_others_are_recovered(run, num_spans):
    run = run.rename(run.with_name("my run"))
    path = file_of(run, ".chunk")
    content = bytearray(path.read_bytes())
    content[8:12] = (99).to_bytes(4, "little")
    path.write_bytes(content)
    code, output = recover(run)
    assert stays(run, code, output)
    assert path.name in output
    assert "version 99" in output
    assert f"kinetoscope recover '{run}' --discard" in output
    assert count_spans(run) < num_spans
    assert path.read_bytes() == content


def test_data_unreadable_at_first_is_in_the_same_traces_later(run, num_spans):
    path = file_of(run, ".chunk")
    whole = path.read_bytes()
    path.write_bytes(whole[:8] + (99).to_bytes(4, "little") + whole[12:])
    assert recover(run)[0] == 1
    num_traces = len(list((run / "traces").glob("ep*.json")))
    path.write_bytes(whole)
    code, output = recover(run)
    assert not stays(run, code, output)
    assert (count_spans(run), len(list((run / "traces").glob("ep*.json")))) == (num_spans, num_traces)


def test_second_recovery_changes_no_trace_and_discard_deletes_and_lists_the_rest(run, num_spans):
    path = file_of(run, ".chunk")
    content = path.read_bytes()
    path.write_bytes(content[:8] + (99).to_bytes(4, "little") + content[12:])
    recover(run)
    found, folder = count_spans(run), spool_folder(run)
    code, output = recover(run)
    assert stays(run, code, output)
    assert count_spans(run) == found
    code, output = recover(run, "--discard")
    assert code == 0, output
    assert f"Deleted {folder}" in output.split(path.name)[0]
    assert "version 99" in output
    assert not (run / "live").exists()
    assert count_spans(run) == found


def test_names_beyond_their_limit_stay(run):
    path = file_of(run, ".names")
    with path.open("ab") as file:
        file.truncate(65 << 20)
    code, output = recover(run)
    assert stays(run, code, output)
    assert f"{path.name} is left out" in output


def test_a_trace_that_a_source_contributed_and_that_cannot_be_read_stays(run, num_spans):
    contributed = spool_folder(run) / "contributed" / "4"
    contributed.mkdir(parents=True)
    (contributed / "torch.json").write_text("no trace at all")
    code, output = recover(run)
    assert stays(run, code, output)
    assert "left out torch.json" in output
    assert count_spans(run) == num_spans
    assert (contributed / "torch.json").exists()


def test_folder_without_an_owner_is_deleted_on_request_if_its_process_is_dead(run):
    folder = spool_folder(run)
    (folder / "run.json").write_text('{"run_na')
    assert recover(run)[0] == 1
    code, output = recover(run, "--discard")
    assert code == 0, output
    assert f"Deleted {folder}" in output
    assert not (run / "live").exists()


@pytest.mark.parametrize(
    ("offset", "value"), [(16, b"\xff\xff\xff\xff"), (26, b"\x63"), (26, b"\x00"), (27, b"\xff"), (8, b"\xff" * 8)]
)
def test_a_damaged_record_is_counted_and_its_neighbours_are_recovered(run, num_spans, offset, value):
    path = file_of(run, ".chunk")
    content = bytearray(path.read_bytes())
    place = 64 + 32 * 5 + offset
    content[place : place + len(value)] = value
    path.write_bytes(content)
    code, output = recover(run)
    assert stays(run, code, output)
    assert "1 records of" in output
    assert count_spans(run) == num_spans - 1


@pytest.mark.parametrize("earlier_ns", [2_000_000, 10**15])
def test_a_record_that_extends_beyond_its_window_does_not_overlap_other_windows(run, num_spans, earlier_ns):
    path = file_of(run, ".chunk")
    content = bytearray(path.read_bytes())
    place = 64 + 32 * 5
    begin = int.from_bytes(content[place : place + 8], "little")
    content[place : place + 8] = max(0, begin - earlier_ns).to_bytes(8, "little")
    path.write_bytes(content)
    code, _ = recover(run)
    assert code == 0
    assert count_spans(run) == num_spans
    with load(run / "traces" / "merged_trace.json") as trace:
        assert trace.errors() == {}


def test_a_rank_that_cannot_be_read_is_named_and_the_others_are_recovered(run, num_spans):
    other = run / "live" / "other"
    other.mkdir()
    (other / "run.json").write_text('{"run_na')
    code, output = recover(run)
    assert code == 1
    assert f"{other} stays as it is" in output
    assert count_spans(run) == num_spans
    assert [path.name for path in (run / "live").iterdir()] == ["other"]


# -- after a power cut, the system has written files in any order ------------------------------------------------------

CUTS = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "shorter": lambda path: os.truncate(path, 4096),
    "zeroed at its end": lambda path: path.write_bytes(path.read_bytes()[:4096] + bytes(path.stat().st_size - 4096)),
}


@pytest.mark.parametrize("cut", CUTS)
def test_data_lost_to_a_power_cut_is_reported_and_the_folder_stays(run, num_spans, cut):
    path = file_of(run, ".spool")
    CUTS[cut](path)
    code, output = recover(run)
    assert stays(run, code, output)
    assert "missing" in output or path.name in output
    assert 0 < count_spans(run) < num_spans
    code, output = recover(run, "--discard")
    assert code == 0, output
    assert not (run / "live").exists()


@pytest.mark.parametrize("cut", ["gone", "empty", "zeroed"])
def test_a_chunk_between_others_is_missed(run, num_spans, cut):
    chunks = {path: read_chunk(path.read_bytes()) for path in spool_folder(run).glob("*.chunk")}
    owner = int(min(path.name for path in spool_folder(run).glob("*.run")).partition("-")[0])
    in_order = sorted((found[0].sequence, path) for path, found in chunks.items() if found and found[0].pid == owner)
    CUTS[cut](in_order[1][1])
    code, output = recover(run)
    assert stays(run, code, output)
    assert "1 file with records missing" in output
    assert 0 < count_spans(run) <= num_spans  # the file may have had counters only


CLOSED = """
import os, sys, threading
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, TraceHandler
began = threading.Event()
class Slow(TraceHandler):
    def process_cycle(self, cycle):
        began.set()
        threading.Event().wait()
handlers = [Slow(), JSONTraceHandler(sys.argv[1] + "/traces")]
with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, handlers) as profiler:
    work = profiler.marker("work")
    for _ in range(2_000):
        with work:
            pass
    profiler.step()
    began.wait()
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def killed_after_close(tmp_path_factory):
    run = tmp_path_factory.mktemp("closed") / "run"
    subprocess.run([sys.executable, "-c", CLOSED, str(run)], capture_output=True)
    return run


@pytest.mark.parametrize("cut", [None, *CUTS])
def test_closed_window_has_a_known_number_of_missing_records(killed_after_close, tmp_path, cut):
    run = Path(shutil.copytree(killed_after_close, tmp_path / "run"))
    if cut is not None:
        CUTS[cut](file_of(run, ".chunk"))
    code, output = recover(run)
    assert stays(run, code, output) is (cut is not None)
    num_missing = 2_000 - count_spans(run)
    assert bool(num_missing) is (cut is not None)
    if cut == "shorter":
        assert re.search(r"Window 1: 1,[89]\d\d of 2,0\d\d records are missing", output)


WITH_A_WORKER = """
import os, sys, threading
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, JSONTraceHandler(sys.argv[1] + "/traces")) as profiler:
    work, read = profiler.marker("work"), profiler.marker("read")
    (ready, go), (done, end) = os.pipe(), os.pipe()
    with work:
        pass
    worker = os.fork()
    if worker == 0:
        for _ in range(10):
            with read:
                pass
        os.write(go, b"1")
        os.read(done, 1)
        os._exit(0)
    os.read(ready, 1)
    profiler.step()
    profiler.lifecycle.drain(60)
    with work:
        pass
    os.kill(worker, 9)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("is_lost", [False, True])
def test_spans_of_workers_that_were_saved_do_not_come_twice_if_the_log_is_lost(tmp_path, is_lost):
    run = tmp_path / "run"
    subprocess.run([sys.executable, "-c", WITH_A_WORKER, str(run)], capture_output=True)
    assert count_spans(run, "read") == 10
    if is_lost:
        (spool_folder(run) / "windows.jsonl").unlink()
    code, output = recover(run)
    assert (count_spans(run, "read"), count_spans(run, "work")) == (10, 2)
    assert code == is_lost, output
    assert ("windows.jsonl is missing" in output) is is_lost


# -- mutated at random ---------------------------------------------------------------------------------------------


def mutate(folder, chance):
    """Damage one or several files in ways in which disks, people and other programs do."""
    files = sorted(path for path in folder.iterdir() if path.suffix != ".lock")
    for _ in range(chance.choice([1, 1, 1, 3])):
        path = chance.choice(files)
        content = bytearray(path.read_bytes()) if path.exists() else bytearray()
        end = len(content) if chance.random() < 0.3 else min(len(content), 2000)
        place = chance.randrange(end) if end else 0
        what = chance.randrange(7)
        if what <= 2 and content:
            content[place] = chance.randrange(256)
        elif what == 3:
            del content[place:]
        elif what == 4:
            content[place : place + chance.randrange(1, 64)] = chance.randbytes(chance.randrange(64))
        elif what == 5:
            other = chance.choice(files)
            content = bytearray(other.read_bytes()) if other.exists() else bytearray()
        elif what == 6:
            path.unlink(missing_ok=True)
            continue
        path.write_bytes(content)


@pytest.mark.parametrize("part", range(10))
def test_if_any_byte_is_damaged_recover_says_so_or_makes_good_traces(killed, tmp_path, part):
    for seed in range(part, NUM_MUTATED, 10):
        run = Path(shutil.copytree(killed, tmp_path / str(seed)))
        mutate(spool_folder(run), random.Random(seed))
        code, output = recover(run)
        assert code in (0, 1), (seed, output)
        assert (code == 1) == ("stays as it is" in output), (seed, output)
        for path in (run / "traces").glob("*.json"):
            json.loads(path.read_text())
        if seed % 10 == part and seed < 10:
            with load(run / "traces" / "merged_trace.json") as trace:
                assert trace.errors() == {}, seed
        shutil.rmtree(run)
