"""frames/trace_parquet.py: where the cache of a file is, and how long it is kept."""

import json
import os
import stat
import time

import pytest

import kinetoscope
from kinetoscope.core.paths import user_cache
from kinetoscope.frames import trace_parquet
from kinetoscope.frames.load import read_trace

EVENTS = [{"ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": 0, "dur": 1}]


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kinetoscope"


def write(path, num_events=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(EVENTS * num_events))
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make_older(path, hours):
    then = time.time() - 3600 * hours
    os.utime(path, (then, then))


def test_nothing_is_written_next_to_a_foreign_trace_and_the_user_cache_is_used(tmp_path, own_cache):
    path = write(tmp_path / "theirs" / "trace.json")
    assert kinetoscope.load(path).spans.collect().height == 1
    assert names(path.parent) == ["trace.json"]
    assert stat.S_IMODE(own_cache.stat().st_mode) == 0o700
    (kept,) = own_cache.iterdir()
    before = kept.stat().st_ino
    assert kinetoscope.load(path).spans.collect().height == 1
    assert kept.stat().st_ino == before, "the second time it is read from there"


@pytest.mark.parametrize("name", ["traces/trace.json", "torch_traces/rank0.3.pt.trace.json"])
def test_nothing_is_left_in_the_folder_of_a_run(tmp_path, own_cache, name):
    (tmp_path / "run" / "traces" / ".manifest").mkdir(parents=True)
    path = write(tmp_path / "run" / name)
    kinetoscope.load(path)
    assert names(path.parent) == sorted({path.name, *names(path.parent)} - {".kinetoscope_cache"})
    assert len(names(own_cache)) == 1


@pytest.mark.parametrize(
    "place", [".kinetoscope_cache/trace.json.parquet", "traces/.kinetoscope_cache/trace.json.parquet"]
)
def test_a_cache_that_a_stranger_left_in_the_folder_of_a_run_is_not_believed(tmp_path, own_cache, place):
    """It has the size and the time of the trace, and operators that are in no trace."""
    run = tmp_path / "run"
    (run / "traces" / ".manifest").mkdir(parents=True)
    path = write(run / "traces" / "trace.json")
    trace = read_trace(str(write(tmp_path / "other.json", 3)))
    status = path.stat()
    (run / place).parent.mkdir(parents=True)
    trace_parquet.write_parquet(trace, run / place, f"{status.st_size}-{status.st_mtime_ns}")
    for source in (path, run, run / "traces"):
        loaded = kinetoscope.load(source)
        assert loaded.spans.collect().height == 1


def test_trace_that_replaced_one_of_equal_size_and_time_is_read(tmp_path, own_cache):
    path = write(tmp_path / "trace.json")
    kinetoscope.load(path)
    before, text = path.stat(), path.read_text()
    other = tmp_path / "other.json"
    other.write_text(text.replace('"x"', '"y"'))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert kinetoscope.load(path).spans.collect()["name"].to_list() == ["y"]


def test_two_traces_of_one_name_do_not_share_a_cache(tmp_path, own_cache):
    one, other = write(tmp_path / "a" / "trace.json", 2), write(tmp_path / "b" / "trace.json", 2)
    other.write_text(one.read_text().replace("x", "y"))
    same = one.stat()
    os.utime(other, ns=(same.st_atime_ns, same.st_mtime_ns))
    kinetoscope.load(one)
    assert set(kinetoscope.load(other).spans.collect()["name"]) == {"y"}
    assert len(names(own_cache)) == 2


def test_the_least_recently_used_cache_files_are_deleted_when_there_is_too_much(tmp_path, own_cache, monkeypatch):
    paths = [write(tmp_path / f"{number}.json") for number in range(4)]
    kept = []
    for path in paths[:3]:
        kinetoscope.load(path)
        kept += [path for path in own_cache.iterdir() if path not in kept]
    for file, hours in zip(kept, (4, 5, 3), strict=True):
        make_older(file, hours)
    kinetoscope.load(paths[1])  # used again: no longer the oldest
    size_bytes = kept[0].stat().st_size
    monkeypatch.setattr(user_cache, "MAX_CACHE_BYTES", size_bytes * 7 // 2)
    kinetoscope.load(paths[3])
    assert [file.exists() for file in kept] == [False, True, True]
    assert sum(file.stat().st_size for file in own_cache.iterdir()) <= size_bytes * 7 // 2


def test_a_cache_file_that_was_just_used_is_not_deleted_for_a_new_one(tmp_path, own_cache, monkeypatch):
    first = kinetoscope.load(write(tmp_path / "0.json"))
    first = kinetoscope.load(tmp_path / "0.json")  # it reads the cache only when events are needed
    monkeypatch.setattr(user_cache, "MAX_CACHE_BYTES", next(own_cache.iterdir()).stat().st_size)
    assert kinetoscope.load(write(tmp_path / "1.json")).spans.collect().height == 1
    assert first.spans.collect().height == 1
    assert len(names(own_cache)) == 1


@pytest.mark.parametrize("where", ["a file", "open to others", "no home"])
def test_a_trace_is_loaded_even_if_no_cache_can_be_written(tmp_path, own_cache, monkeypatch, where):
    if where == "a file":
        own_cache.parent.write_text("")
    elif where == "open to others":
        own_cache.mkdir(parents=True, mode=0o777)
        own_cache.chmod(0o777)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        monkeypatch.setenv("HOME", "nowhere")
    path = write(tmp_path / "trace.json")
    for _ in range(2):
        assert kinetoscope.load(path).spans.collect().height == 1
    if where == "open to others":
        assert stat.S_IMODE(own_cache.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_cache_folder_of_another_user_is_not_used(tmp_path, own_cache):
    own_cache.mkdir(parents=True)
    os.chown(own_cache, 12345, 12345)
    kinetoscope.load(write(tmp_path / "trace.json"))
    assert names(own_cache) == []
