"""The commands ``kinetoscope convert`` and ``kinetoscope check``, and pipes, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kinetoscope import load as load_trace
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import read_chrome
from support.fork_server import run_command_on_bytes, run_program
from support.trace_processor.trace_processor import load

BASE_NS = 1_790_857_026_000_000_000


def kinetoscope(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_command_on_bytes(*arguments, stdin=stdin)


def trace(num_spans: int = 50, **header: object) -> bytes:
    events = [
        {"ph": "X", "name": f"op {n}", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 5}
        for n in range(num_spans)
    ]
    return json.dumps({"baseTimeNanoseconds": BASE_NS} | header | {"traceEvents": events}, indent=2).encode()


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "rank0.json"
    path.write_bytes(trace())
    return path


@pytest.mark.parametrize("suffix", [".json.gz", ".json.zst"])
def test_packing_and_unpacking_gives_back_every_byte(file, tmp_path, suffix):
    if suffix.endswith(".zst"):
        pytest.importorskip("zstandard")
    assert kinetoscope("convert", file, "-o", tmp_path / f"packed{suffix}").returncode == 0
    done = kinetoscope("convert", tmp_path / f"packed{suffix}", "-o", tmp_path / "back.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back.json").read_bytes() == file.read_bytes()


def test_a_trace_becomes_perfettos_and_not_back(file, tmp_path):
    done = kinetoscope("convert", file, "-o", tmp_path / "out.pftrace", "--json")
    assert json.loads(done.stdout)[0]["output"].endswith("out.pftrace")
    with load(tmp_path / "out.pftrace") as loaded:
        assert loaded.errors() == {}
        assert loaded.query("select count(*) as n from slice") == [{"n": 50}]
    back = kinetoscope("convert", tmp_path / "out.pftrace", "-o", tmp_path / "back.json")
    assert (back.returncode, back.stderr.count(b"\n")) == (2, 1)
    assert not (tmp_path / "back.json").exists()


def test_a_trace_comes_back_from_parquet_with_all_its_events(tmp_path, file):
    assert kinetoscope("convert", file, "-o", tmp_path / "trace.parquet").returncode == 0
    done = kinetoscope("convert", tmp_path / "trace.parquet", "-o", tmp_path / "back.json")
    assert done.returncode == 0, done.stderr
    before, after = (read_chrome(path).events for path in (file, tmp_path / "back.json"))
    assert after == before


def test_many_files_go_into_a_folder(file, tmp_path):
    (tmp_path / "rank1.json").write_bytes(trace())
    done = kinetoscope("convert", file, tmp_path / "rank1.json", "-o", tmp_path / "packed", "--to", ".json.gz")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "packed").iterdir()) == ["rank0.json.gz", "rank1.json.gz"]


def test_a_name_that_says_nothing_is_refused(file, tmp_path):
    done = kinetoscope("convert", file, "-o", tmp_path / "out.txt")
    assert done.returncode == 2
    assert b".pftrace" in done.stderr


def test_traces_go_through_pipes(file):
    packed = kinetoscope("convert", "-", "-o", "-", stdin=file.read_bytes())
    assert packed.stdout == file.read_bytes()
    merged = kinetoscope("merge", "-o", "-", "-", stdin=file.read_bytes())
    assert sum(event["ph"] == "X" for event in json.loads(merged.stdout)["traceEvents"]) == 50
    assert b"Merged 1 file of 1 rank" in merged.stderr


def test_a_good_trace_has_nothing_wrong_with_it(file):
    done = kinetoscope("check", file)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"no faults (50 events)" in done.stdout


def test_faults_are_reported_and_repaired(tmp_path):
    broken = tmp_path / "rank0.json"
    broken.write_bytes(trace()[:-60])
    done = kinetoscope("check", broken, "--repair", tmp_path / "fixed.json")
    assert done.returncode == 1
    assert b"ends too early" in done.stdout
    assert kinetoscope("check", tmp_path / "fixed.json").returncode == 0


def test_overlaps_repeated_flows_lone_pairs_and_missing_clocks_are_found(tmp_path):
    def span(ts: float) -> dict:
        return {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": ts, "dur": 500}

    events = [span(0), span(250), *([{"ph": "s", "id": 1, "cat": "c", "pid": 1, "tid": 1, "ts": 1}] * 2)]
    events += [{"ph": "E", "pid": 1, "tid": 2, "ts": 1}, {"ph": "B", "name": "b", "pid": 1, "tid": 3, "ts": 1}]
    (tmp_path / "bad.json").write_text(json.dumps(events))
    done = kinetoscope("check", tmp_path / "bad.json", "--json")
    kinds = [finding["kind"] for finding in json.loads(done.stdout)["files"][0]["findings"]]
    assert kinds == ["clock", "nesting", "flows", "pairs", "pairs"]


def test_ranks_without_a_file_are_named(tmp_path):
    for rank in (0, 2):
        info = {"rank": rank, "world_size": 4}
        (tmp_path / f"{rank}.json").write_bytes(trace(distributedInfo=info))
    done = kinetoscope("check", tmp_path)
    assert done.returncode == 1
    assert b"Ranks without a file here: 1, 3." in done.stdout


def test_a_file_that_is_no_trace_is_a_finding_and_not_a_crash(tmp_path):
    (tmp_path / "rank0.json").write_bytes(b"\x00\x01")
    done = kinetoscope("check", tmp_path / "rank0.json")
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"is not JSON" in done.stdout


def test_many_files_are_repaired_into_a_folder_and_those_that_cannot_be_are_named(file, tmp_path):
    (tmp_path / "rank1.json").write_bytes(trace()[:-60])
    (tmp_path / "rank2.json").write_bytes(b"")
    done = kinetoscope("check", tmp_path, "--repair", tmp_path / "fixed")
    assert done.returncode == 1
    assert sorted(path.name for path in (tmp_path / "fixed").iterdir()) == ["rank0.json", "rank1.json"]
    printed = done.stdout.decode().splitlines()
    assert f"  Rewritten without a change: {tmp_path}/fixed/rank0.json" in printed
    assert f"  Repaired: {tmp_path}/fixed/rank1.json" in printed
    assert printed[-1] == "  Not repaired: it cannot be read."


def test_two_files_of_one_name_do_not_replace_each_other(file, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rank0.json").write_bytes(trace())
    done = kinetoscope("check", file, tmp_path / "other", "--repair", tmp_path / "fixed")
    assert (done.returncode, done.stdout, (tmp_path / "fixed").exists()) == (2, b"", False)
    assert b"rank0.json" in done.stderr


def test_a_trace_is_repaired_from_one_pipe_into_another(file):
    done = kinetoscope("check", "-", "--repair", "-", stdin=trace()[:-60])
    assert len(json.loads(done.stdout)["traceEvents"]) == 49
    assert done.stderr.startswith(b"-: faults found (49 events).")


def test_ranks_within_a_merged_trace_are_not_missing(tmp_path):
    for rank in range(3):
        info = {"rank": rank, "world_size": 3}
        (tmp_path / f"{rank}.json").write_bytes(trace(distributedInfo=info))
    kinetoscope("merge", "-o", tmp_path / "two.json", tmp_path / "0.json", tmp_path / "1.json")
    done = kinetoscope("check", tmp_path / "two.json", tmp_path / "2.json")
    assert (done.returncode, done.stdout.count(b"no faults")) == (0, 2)


def test_from_parquet_to_perfettos_format(file, tmp_path):
    kinetoscope("convert", file, "-o", tmp_path / "trace.parquet")
    assert kinetoscope("convert", tmp_path / "trace.parquet", "-o", tmp_path / "out.pftrace").returncode == 0
    with load(tmp_path / "out.pftrace") as loaded:
        assert loaded.errors() == {}
        assert loaded.query("select count(*) as n from slice") == [{"n": 50}]


def test_a_file_that_is_no_trace_is_not_converted(tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = kinetoscope("convert", tmp_path / "picture.png", "-o", tmp_path / "out.json.gz")
    assert (done.returncode, (tmp_path / "out.json.gz").exists()) == (1, False)
    assert b"is not JSON" in done.stderr


@pytest.mark.parametrize("verb", [["merge", "-o", "-"], ["check", "--repair", "-"], ["convert", "-o", "-"]])
def test_a_disk_that_is_full_is_named_as_the_reason(file, verb):
    """The error does not blame the file that is read."""
    order = [*verb[1:], file]
    command = [sys.executable, "-m", "kinetoscope", verb[0], *map(str, order)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr == b"error: Cannot write -: No space left on device. Check free space and permissions.\n"


def test_an_output_that_is_a_device_or_a_pipe_stays_one(file, tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with subprocess.Popen(["cat", tmp_path / "pipe.json"], stdout=subprocess.PIPE) as reader:
        assert kinetoscope("merge", "-o", tmp_path / "pipe.json", file).returncode == 0
        assert len(json.loads(reader.communicate(timeout=60)[0])["traceEvents"]) > 50
    assert (tmp_path / "pipe.json").is_fifo()


def test_output_pipe_without_a_reader_is_refused_at_once(file, tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    done = kinetoscope("convert", file, "-o", tmp_path / "pipe.json")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"no process reads this pipe. Start its reader first." in done.stderr
    assert (tmp_path / "pipe.json").is_fifo()


@pytest.mark.parametrize(
    "verb",
    [
        *(["check", "PATH"], ["convert", "PATH", "-o", "OUT"], ["merge", "-o", "OUT", "PATH"], ["info", "PATH"]),
        *(["summary", "PATH"], ["report", "PATH", "-o", "OUT"], ["diff", "PATH", "PATH"], ["whatif", "PATH"]),
        *(["check", "PATH", "--repair", "OUT"], ["info", "file://PATH"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_named_pipe_without_a_writer_is_refused_in_a_sentence(file, tmp_path, verb, suffix):
    """Else the command would wait for ever."""
    path, output = tmp_path / f"pipe{suffix}", tmp_path / "out.json"
    os.mkfifo(path)
    words = [word.replace("PATH", str(path)).replace("OUT", str(output)) for word in verb]
    done = kinetoscope(*words)
    assert done.returncode in (1, 2)  # diff has 1 for what got slower
    printed = done.stderr.decode() + done.stdout.decode()
    assert f"{path}: it is a named pipe, not a file. Pass a file, or - to read the standard input" in printed
    assert not output.exists()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(device):
    done = kinetoscope("check", device)
    assert done.returncode == 1
    assert b"it is a device, not a file" in done.stderr


def test_process_substitution_is_read_like_standard_input(file):
    command = f"{sys.executable} -m kinetoscope check <(cat '{file}')"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=120, check=False)
    assert done.stdout.endswith(b": no faults (50 events).\n"), done.stderr


def test_loading_a_named_pipe_or_one_in_a_list_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    for source in (tmp_path / "pipe.json", [tmp_path / "pipe.json"]):
        with pytest.raises(TraceFileError, match="it is a named pipe, not a file"):
            load_trace(source)


def test_a_pipe_in_a_folder_is_refused_and_not_waited_for(file, tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    done = kinetoscope("check", tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith(b"pipe.json is not used: it is no ordinary file.\n")


def test_the_error_says_that_a_path_has_no_traces(tmp_path):
    done = kinetoscope("check", tmp_path / "nowhere.json")
    assert (done.returncode, b"No such file or folder" in done.stderr) == (2, True)
    (tmp_path / "folder").mkdir()
    done = kinetoscope("merge", "-o", tmp_path / "out.json", tmp_path / "folder")
    assert (done.returncode, b"no file ends in .json" in done.stderr) == (1, True)


ENDING = """
import atexit, threading
import kinetoscope.cli.explain
from kinetoscope.cli import command
def run(arguments):
    def work():
        threading.main_thread().join()
        print("the thread")
    threading.Thread(target=work).start()
    atexit.register(print, "what was registered")
    print("the work")
    return 3
kinetoscope.cli.explain.run = run
command()
"""


def test_command_exits_after_its_threads_with_all_exit_work_done_and_printed():
    done = run_program(ENDING, "explain", finalizes=True)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == "the work\nthe thread\nwhat was registered\n"
