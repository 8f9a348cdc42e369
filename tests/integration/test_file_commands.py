"""The commands ``kinetoscope convert`` and ``kinetoscope check``, and pipes, in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kinetoscope.formats.chrome import read_chrome
from trace_processor.trace_processor import load

BASE_NS = 1_790_857_026_000_000_000


def kinetoscope(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "kinetoscope", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)


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
    assert kinetoscope("convert", file, tmp_path / f"packed{suffix}").returncode == 0
    done = kinetoscope("convert", tmp_path / f"packed{suffix}", tmp_path / "back.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back.json").read_bytes() == file.read_bytes()


def test_a_trace_becomes_perfettos_and_not_back(file, tmp_path):
    done = kinetoscope("convert", file, tmp_path / "out.pftrace", "--json")
    assert json.loads(done.stdout)[0]["output"].endswith("out.pftrace")
    with load(tmp_path / "out.pftrace") as loaded:
        assert loaded.errors() == {}
        assert loaded.query("select count(*) as n from slice") == [{"n": 50}]
    back = kinetoscope("convert", tmp_path / "out.pftrace", tmp_path / "back.json")
    assert (back.returncode, back.stderr.count(b"\n")) == (1, 1)
    assert not (tmp_path / "back.json").exists()


def test_a_trace_comes_back_from_parquet_with_all_its_events(tmp_path, file):
    pytest.importorskip("polars")
    assert kinetoscope("convert", file, tmp_path / "trace.parquet").returncode == 0
    done = kinetoscope("convert", tmp_path / "trace.parquet", tmp_path / "back.json")
    assert done.returncode == 0, done.stderr
    before, after = (read_chrome(it).events for it in (file, tmp_path / "back.json"))
    assert after == before


def test_many_files_go_into_a_folder(file, tmp_path):
    (tmp_path / "rank1.json").write_bytes(trace())
    done = kinetoscope("convert", file, tmp_path / "rank1.json", tmp_path / "packed", "--to", ".json.gz")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "packed").iterdir()) == ["rank0.json.gz", "rank1.json.gz"]


def test_a_name_that_says_nothing_is_refused(file, tmp_path):
    done = kinetoscope("convert", file, tmp_path / "out.txt")
    assert done.returncode == 1
    assert b".pftrace" in done.stderr


def test_traces_go_through_pipes(file):
    packed = kinetoscope("convert", "-", "-", stdin=file.read_bytes())
    assert packed.stdout == file.read_bytes()
    merged = kinetoscope("merge", "-", "-", stdin=file.read_bytes())
    assert sum(event["ph"] == "X" for event in json.loads(merged.stdout)["traceEvents"]) == 50
    assert b"Merged 1 files" in merged.stderr


def test_a_good_trace_has_nothing_wrong_with_it(file):
    done = kinetoscope("check", file)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"nothing wrong (50 events)" in done.stdout


def test_what_is_wrong_is_said_and_repaired(tmp_path):
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
    assert b"2 ranks have no file here: 1, 3." in done.stdout


def test_what_is_no_trace_is_a_finding_and_not_a_crash(tmp_path):
    (tmp_path / "rank0.json").write_bytes(b"\x00\x01")
    done = kinetoscope("check", tmp_path / "rank0.json")
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"is not JSON" in done.stdout
