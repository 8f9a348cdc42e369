"""merge/manifest_merge.py: the merged file of one rank with one window is that rank's trace under another name."""

import json
import os
import shutil
import socket
from functools import partial
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.formats.manifest import RankStarted, TraceExpired, TraceFinished, append_entry
from kinetoscope.merge.manifest_merge import merge_manifest, merge_or_link

START = "this start"


def start(folder: Path, rank: int = 0, world_size: int = 1) -> None:
    attempt = Attempt("a", 0, os.getpid(), START, socket.gethostname())
    append_entry(folder, rank, RankStarted(Ranks(rank, rank, world_size, world_size, 0), attempt))


def finish(folder: Path, cycle: int, rank: int = 0, suffix: str = ".json") -> Path:
    event = {"ph": "X", "name": f"cycle {cycle}", "pid": rank, "tid": 9, "ts": 1, "dur": 1}
    header = {"baseTimeNanoseconds": 10**18, "kinetoscope": {"rank": rank, "cycle": cycle, "start": START}}
    path = folder / f"{cycle}-{rank}{suffix}"
    path.write_text(json.dumps(header | {"traceEvents": [event]}))
    append_entry(folder, rank, TraceFinished(rank, path.name, 1, {}, cycle))
    return path


def merge(folder: Path, *, as_list: bool = False) -> Path:
    output, delete = folder / "merged.json", partial(Path.unlink, missing_ok=True)
    settings = {"node_rank": 0, "start": START, "as_list": as_list, "num_cycles": 1}
    assert merge_or_link(folder, output, 0.0, run_folder=folder, delete=delete, **settings)
    return output


def names_in(path: Path) -> list[str]:
    return sorted(e["name"] for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X")


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if "partial" in name]


def test_only_trace_of_a_single_rank_is_linked_without_more_space(tmp_path):
    start(tmp_path)
    trace = finish(tmp_path, 0)
    for _ in range(2):  # the merge at the end follows one during the run
        output = merge(tmp_path)
        assert output.samefile(trace)
        assert not output.is_symlink()
        assert not leftovers(tmp_path)


def test_it_is_copied_where_links_fail(tmp_path, monkeypatch):
    def fail(*arguments: object, **options: object) -> None:
        raise PermissionError("no hard links on this file system")

    start(tmp_path)
    trace = finish(tmp_path, 0)
    monkeypatch.setattr(os, "link", fail)
    output = merge(tmp_path)
    assert output.read_bytes() == trace.read_bytes()
    assert not output.samefile(trace)
    assert not leftovers(tmp_path)


def test_a_second_window_is_merged_with_the_first_and_changes_no_trace(tmp_path):
    start(tmp_path)
    first = finish(tmp_path, 0)
    before = first.read_bytes()
    merge(tmp_path)
    second = finish(tmp_path, 1)
    output = merge(tmp_path)
    assert names_in(output) == ["cycle 0", "cycle 1"]
    assert first.read_bytes() == before
    assert not output.samefile(second)


def test_a_linked_window_that_was_deleted_since_stays_in_the_merged_file(tmp_path):
    start(tmp_path)
    first = finish(tmp_path, 0)
    merge(tmp_path)
    finish(tmp_path, 1)
    append_entry(tmp_path, 0, TraceExpired(first.name))
    first.unlink()
    assert names_in(merge(tmp_path)) == ["cycle 0", "cycle 1"]


def test_recover_replaces_a_linked_file_of_the_same_attempt(tmp_path):
    start(tmp_path)
    finish(tmp_path, 0)
    output = merge(tmp_path)
    finish(tmp_path, 1)
    report = merge_manifest(tmp_path, output, start=START, replaces=False)
    assert report is not None
    assert report.output == output
    assert names_in(output) == ["cycle 0", "cycle 1"]


@pytest.mark.parametrize("case", ["other suffix", "two ranks", "as Composer does"])
def test_a_trace_is_merged_where_the_merged_file_needs_more_than_it_has(tmp_path, case):
    num_ranks = 2 if case == "two ranks" else 1
    traces: list[Path] = []
    for rank in range(num_ranks):
        start(tmp_path, rank, num_ranks)
        traces.append(finish(tmp_path, 0, rank, ".trace" if case == "other suffix" else ".json"))
    output = merge(tmp_path, as_list=case == "as Composer does")
    assert not any(map(output.samefile, traces))


@pytest.mark.parametrize("is_linked", [True, False])
def test_a_trace_and_the_merged_trace_of_it_alone_are_loaded_once(tmp_path, is_linked):
    start(tmp_path)
    trace = finish(tmp_path, 0)
    if is_linked:
        (tmp_path / "merged_trace.json").hardlink_to(trace)
    else:
        shutil.copy(trace, tmp_path / "merged_trace.json")
    shutil.rmtree(tmp_path / ".manifest")
    assert [one.name for one in kinetoscope.load(tmp_path)] == [str(trace)]
