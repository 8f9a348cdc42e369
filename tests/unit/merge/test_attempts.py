"""merge/manifest_merge.py: starts of ranks that belong together, and messages if that is uncertain."""

import json
from pathlib import Path

import pytest

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.manifest import AttemptAgreed, ConcurrentRanks, RankStarted, TraceFinished, append_entry
from kinetoscope.merge.manifest_merge import find_attempt, merge_manifest


def start(folder: Path, rank: int, name: str, *, agreed: str = "", beside: tuple[str, ...] = (), node: int = 0) -> None:
    append_entry(folder, rank, RankStarted(Ranks(rank, rank, 2, 2, node), Attempt("launch", 0, 1, name, "host")))
    if agreed:
        append_entry(folder, rank, AttemptAgreed(agreed, name))
    if beside:
        append_entry(folder, rank, ConcurrentRanks(list(beside), name))


def finish(folder: Path, rank: int, path: str, name: str) -> None:
    event = {"ph": "X", "name": "x", "pid": rank, "tid": 9, "ts": 1, "dur": 1}
    header = {"baseTimeNanoseconds": 10**18, "kinetoscope": {"rank": rank}}
    (folder / path).write_text(json.dumps(header | {"traceEvents": [event]}))
    append_entry(folder, rank, TraceFinished(rank, path, 1, {}, 0, name))


def starts_with(folder: Path, name: str | None = None) -> set[str]:
    return find_attempt(folder, 0, name).starts


def test_starts_with_an_agreed_id_belong_together_and_others_do_not(tmp_path):
    for rank in (0, 1):
        start(tmp_path, rank, f"1-{rank}", agreed="first")
    for rank in (0, 1):
        start(tmp_path, rank, f"2-{rank}", agreed="second", beside=("1-0", "1-1"))
    assert starts_with(tmp_path, "1-1") == {"1-0", "1-1"}
    assert starts_with(tmp_path, "2-0") == {"2-0", "2-1"}
    assert starts_with(tmp_path) == {"2-0", "2-1"}


def test_without_an_id_starts_belong_together_if_one_saw_the_other_alive(tmp_path):
    start(tmp_path, 0, "0")
    start(tmp_path, 1, "1", beside=("0",))
    start(tmp_path, 2, "2", beside=("1",))
    start(tmp_path, 3, "3")
    assert starts_with(tmp_path, "0") == {"0", "1", "2"}
    assert starts_with(tmp_path, "3") == {"3"}


def test_one_without_an_id_does_not_join_two_attempts_that_have_one(tmp_path):
    start(tmp_path, 0, "0", agreed="first")
    start(tmp_path, 1, "1", beside=("0",))
    start(tmp_path, 2, "2", agreed="second", beside=("1",))
    assert starts_with(tmp_path, "0") == {"0", "1"}
    assert "0" not in starts_with(tmp_path, "2")


def test_ranks_of_other_nodes_are_merged_into_files_of_their_own(tmp_path):
    start(tmp_path, 0, "0", agreed="id")
    start(tmp_path, 1, "1", agreed="id", node=1)
    attempt = find_attempt(tmp_path, 0)
    assert (attempt.starts, attempt.others) == ({"0"}, [])


def test_recovered_traces_of_an_earlier_start_are_not_merged_with_the_later_one(tmp_path):
    start(tmp_path, 0, "first")
    start(tmp_path, 0, "second")
    finish(tmp_path, 0, "new.json", "second")
    finish(tmp_path, 0, "recovered.json", "first")
    report = merge_manifest(tmp_path, tmp_path / "merged.json", start="second")
    assert report is not None
    assert json.loads(report.output.read_text())["kinetoscope"]["sources"] == ["new.json"]
    again = merge_manifest(tmp_path, tmp_path / "merged.json", start="first", replaces=False)
    assert again is not None
    assert again.output.name == "merged-first.json"
    assert json.loads(again.output.read_text())["kinetoscope"]["sources"] == ["recovered.json"]


def test_a_file_that_a_later_start_has_written_over_is_the_later_ones(tmp_path):
    for name in ("first", "second"):
        start(tmp_path, 0, name)
        finish(tmp_path, 0, "same.json", name)
    assert merge_manifest(tmp_path, tmp_path / "merged.json", start="first") is None


@pytest.mark.parametrize("starts", [{"name": "../../elsewhere"}, {"name": "plain", "beside": ("../../elsewhere",)}])
def test_start_entry_with_a_name_outside_its_folder_is_reported_with_its_line(tmp_path, starts):
    start(tmp_path, 0, **starts)
    with pytest.raises(TraceFileError, match=r"rank0[.]jsonl: in line [12], \S+ cannot be part of a file's name"):
        find_attempt(tmp_path, 0, None)


def test_a_merged_trace_is_called_after_its_start(tmp_path):
    start(tmp_path, 1, "plain")
    assert find_attempt(tmp_path, 0).add_start_to_name("a/merged.json.gz") == "a/merged-plain.json.gz"
