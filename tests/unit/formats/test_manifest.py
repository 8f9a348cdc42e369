"""formats/manifest.py: another process reads what one rank appends, whatever happens in between."""

import pytest

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.formats.manifest import (
    NothingRecorded,
    RankClosed,
    RankStarted,
    TraceExpired,
    TraceFinished,
    append_entry,
    find_empty_reason,
    read_manifest,
)


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
def test_incomplete_last_line_is_skipped_and_the_next_entry_starts_a_new_line(tmp_path, torn):
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


WHY = "Nothing was recorded: no step() was called."


def test_reason_of_no_recording_is_reported_for_the_run_folder_and_its_traces(tmp_path):
    attempt = Attempt("run", 0, 1, "start")
    append_entry(tmp_path / "run" / "any", 0, RankStarted(Ranks(), attempt))
    assert find_empty_reason(tmp_path / "run") == ""
    append_entry(tmp_path / "run" / "any", 0, NothingRecorded(WHY, "start"))
    assert find_empty_reason(tmp_path / "run") == WHY
    assert find_empty_reason(tmp_path / "run" / "any") == WHY
    assert find_empty_reason(tmp_path / "nowhere") == ""


def test_reason_of_an_earlier_start_is_not_reported_for_a_later_one(tmp_path):
    traces = tmp_path / "traces"
    for start in ("one", "two"):
        append_entry(traces, 0, RankStarted(Ranks(), Attempt("run", 0, 1, start)))
        append_entry(traces, 0, NothingRecorded(start, start))
    assert find_empty_reason(tmp_path) == "two"
    append_entry(traces / "attempt1", 0, RankStarted(Ranks(), Attempt("run", 1, 1, "three")))
    assert find_empty_reason(tmp_path) == ""


def test_reason_is_omitted_where_another_rank_or_recover_has_written_a_trace(tmp_path):
    for rank in (0, 1):
        append_entry(tmp_path, rank, RankStarted(Ranks(rank, rank, 2, 2), Attempt("run", 0, 1, f"{rank}")))
    append_entry(tmp_path, 0, NothingRecorded(WHY, "0"))
    assert find_empty_reason(tmp_path) == WHY
    append_entry(tmp_path, 1, TraceFinished(1, "a.json", 1, {}, 0, "1"))
    assert find_empty_reason(tmp_path) == ""


@pytest.mark.parametrize("other", ["torch_traces", "zzz"])
def test_the_reason_is_found_though_another_folder_of_the_run_has_a_manifest_too(tmp_path, other):
    for folder in ("traces", other):
        append_entry(tmp_path / folder, 0, RankStarted(Ranks(), Attempt("run", 0, 1, "start")))
    append_entry(tmp_path / "traces", 0, NothingRecorded(WHY, "start"))
    assert find_empty_reason(tmp_path) == WHY
    append_entry(tmp_path / other, 0, finished("a.json"))
    assert find_empty_reason(tmp_path) == ""


def test_reason_of_the_last_attempt_is_reported_even_if_an_earlier_one_recorded(tmp_path):
    append_entry(tmp_path / "torch_traces", 0, RankStarted(Ranks(), Attempt("run", 0, 1, "one")))
    append_entry(tmp_path / "torch_traces", 0, finished("a.json"))
    last = tmp_path / "traces" / "attempt1"
    append_entry(last, 0, RankStarted(Ranks(), Attempt("run", 1, 1, "two")))
    append_entry(last, 0, NothingRecorded(WHY, "two"))
    assert [find_empty_reason(folder) for folder in (tmp_path, tmp_path / "traces")] == [WHY, WHY]
