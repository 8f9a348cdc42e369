"""formats/manifest.py: another process reads what one rank appends, whatever happens in between."""

import pytest

from kinetoscope.formats.manifest import (
    RankClosed,
    RankStarted,
    TraceExpired,
    TraceFinished,
    append_entry,
    read_manifest,
)
from kinetoscope.training.ranks import Attempt, Ranks


def started(rank: int = 0, restart: int = 0) -> RankStarted:
    return RankStarted(Ranks(rank, rank, 2, 2), Attempt("a", restart, 1234, host="host"))


def finished(path: str, rank: int = 0) -> TraceFinished:
    return TraceFinished(rank, path, 10, {"batch": 4, "total_wct": 1.5}, 0)


def test_appended_entries_are_read_back_by_rank(tmp_path):
    append_entry(tmp_path, 10, started(10))
    append_entry(tmp_path, 2, started(2))
    append_entry(tmp_path, 2, finished("t.json", 2))
    append_entry(tmp_path, 2, TraceExpired("t.json"))
    append_entry(tmp_path, 2, RankClosed(2))
    second, tenth = read_manifest(tmp_path)
    assert (second.rank, tenth.rank) == (2, 10)
    assert second.started == started(2)
    assert second.traces == [finished("t.json", 2)]
    assert second.expired == {"t.json"}
    assert second.kept == []
    assert (second.closed, tenth.closed) == (True, False)


def test_a_folder_without_manifests_has_no_ranks(tmp_path):
    assert read_manifest(tmp_path) == []


@pytest.mark.parametrize("torn", ['{"type":"finis', '{"type":"closed","rank":', "\x00\x00"])
def test_an_incomplete_last_line_is_skipped_and_the_next_entry_is_on_a_line_of_its_own(tmp_path, torn):
    append_entry(tmp_path, 0, started())
    with (tmp_path / ".manifest" / "rank0.jsonl").open("a") as stream:
        stream.write(torn)
    assert read_manifest(tmp_path)[0].started == started()
    append_entry(tmp_path, 0, RankClosed(0))
    assert read_manifest(tmp_path)[0].closed


def test_files_of_an_earlier_run_in_the_folder_do_not_count(tmp_path):
    (tmp_path / "old.json").touch()
    for entry in (started(), finished("old.json"), RankClosed(0), started(restart=1), finished("new.json")):
        append_entry(tmp_path, 0, entry)
    (manifest,) = read_manifest(tmp_path)
    assert [trace.path for trace in manifest.traces] == ["new.json"]
    assert manifest.started == started(restart=1)
    assert not manifest.closed
