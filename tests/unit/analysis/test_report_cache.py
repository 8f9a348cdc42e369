"""analysis/report_cache.py: a report is used again as long as nothing has changed, and never when something has."""

import os
import shutil

import pytest

import kinetoscope
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.report_cache import CachedReport
from kinetoscope.analysis.summaries import Selection
from kinetoscope.errors import TraceFileError
from kinetoscope.frames import load
from kinetoscope.frames.load import read_trace
from trainsim import Settings, simulate


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    simulate(Settings(num_ranks=1, num_steps=4)).write(folder)
    return folder


@pytest.fixture
def folder(recorded, tmp_path, monkeypatch):
    """One rank, and an empty cache. Once there is a file ``spoiled``, no trace can be read."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def read_unless_spoiled(name, on_bytes=None):
        if (tmp_path / "spoiled").exists():
            raise TraceFileError(f"Cannot read the trace {name}: it is spoiled.")
        return read_trace(name, on_bytes)

    monkeypatch.setattr(load, "read_trace", read_unless_spoiled)
    return shutil.copytree(recorded, tmp_path / "traces")


def spoil(folder):
    """Make traces unreadable; so a report can only come from the cache."""
    (folder.parent / "spoiled").touch()
    for parquet in folder.parent.glob("cache/**/*.parquet"):
        parquet.unlink()


def kept_files(folder):
    return list(folder.parent.glob("cache/**/*.report.json"))


def test_an_unchanged_run_has_the_same_report_without_being_read_again(folder):
    first = kinetoscope.analyze(folder)
    spoil(folder)
    again = kinetoscope.analyze(folder)
    assert again == first
    assert again.to_dict() == first.to_dict()


def test_unchanged_runs_are_compared_step_by_step_without_being_read_again(folder):
    ranks = sorted(folder.glob("*.json"))
    first = [kinetoscope.compare(folder, folder), kinetoscope.compare(folder, ranks[0])]
    spoil(folder)
    assert [kinetoscope.compare(folder, folder), kinetoscope.compare(folder, ranks[0])] == first
    assert {"step", "kernel"} <= {row.kind for row in first[0].rows}


def test_a_run_that_was_looked_at_is_compared_without_being_read_again(folder):
    report = kinetoscope.analyze(folder)
    spoil(folder)
    assert kinetoscope.compare(folder, report) == kinetoscope.compare(report, report)


def test_a_run_has_one_report_however_its_folder_is_named(folder, monkeypatch):
    first = kinetoscope.analyze(folder)
    (folder.parent / "link").symlink_to(folder)
    spoil(folder)
    monkeypatch.chdir(folder.parent)
    assert kinetoscope.analyze("traces") == kinetoscope.analyze(folder.parent / "link") == first


def test_link_to_a_trace_is_not_read_as_the_trace(folder):
    trace = folder / "a.json"
    trace.write_text('{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}')
    for rank in (3, 4):
        (folder / f"rank{rank}.json").symlink_to(trace)
        assert kinetoscope.analyze(folder / f"rank{rank}.json").run["ranks"] == [rank]


def test_a_kept_report_can_be_replayed(folder):
    change = Change(frozenset(["launch"]))
    saving_ns = kinetoscope.analyze(folder).saving_ns_per_step(change)
    kept = kinetoscope.analyze(folder)
    assert kept.saving_ns_per_step(change) == saving_ns


def test_a_changed_file_makes_a_new_report(folder):
    kinetoscope.analyze(folder)
    spoil(folder)
    file = next(folder.glob("*.json"))
    os.utime(file, ns=(0, 0))
    with pytest.raises(kinetoscope.errors.TraceFileError):
        kinetoscope.analyze(folder)


@pytest.fixture
def two_ranks(folder):
    """Two ranks, and an empty cache."""
    simulate(Settings(num_ranks=2, num_steps=4)).write(folder)
    return folder


def test_a_new_file_makes_a_new_report(two_ranks):
    folder = two_ranks
    kinetoscope.analyze(folder / "rank0.json")
    assert len(kinetoscope.analyze(folder).ranks) == 2
    (folder / "rank1.json").unlink()
    assert len(kinetoscope.analyze(folder).ranks) == 1


def test_another_question_has_a_report_of_its_own(two_ranks):
    folder = two_ranks
    every = kinetoscope.analyze(folder)
    assert [row.rank for row in kinetoscope.analyze(folder, ranks=[1]).ranks] == [1]
    assert len(kinetoscope.analyze(folder, last_s=0.007).steps) < len(every.steps)
    assert {row.step for row in kinetoscope.analyze(folder, step="no such span").steps} == set()
    assert kinetoscope.analyze(folder) == every
    assert len(kept_files(folder)) == 4


def test_another_version_makes_a_new_report(folder, monkeypatch):
    kinetoscope.analyze(folder)
    spoil(folder)
    monkeypatch.setattr(kinetoscope, "__version__", "0.0.0")
    with pytest.raises(kinetoscope.errors.TraceFileError):
        kinetoscope.analyze(folder)


@pytest.mark.parametrize("name", ["__init__.py", "analysis/steps/steps.py", "analysis/findings/rule.py"])
def test_changed_kinetoscope_code_makes_a_new_report(name, folder, monkeypatch):
    code = folder.parent / "package" / name
    code.parent.mkdir(parents=True)
    code.touch()
    monkeypatch.setattr(kinetoscope, "__file__", str(folder.parent / "package" / "__init__.py"))
    first = kinetoscope.analyze(folder)
    spoil(folder)
    assert kinetoscope.analyze(folder) == first
    os.utime(code, ns=(0, code.stat().st_mtime_ns + 1))
    with pytest.raises(kinetoscope.errors.TraceFileError):
        kinetoscope.analyze(folder)


def test_without_the_cache_a_report_is_neither_read_nor_kept(folder):
    kinetoscope.analyze(folder, cache=False)
    assert kept_files(folder) == []
    kinetoscope.analyze(folder)
    spoil(folder)
    with pytest.raises(kinetoscope.errors.TraceFileError):
        kinetoscope.analyze(folder, cache=False)


def test_a_damaged_report_is_made_again(folder):
    first = kinetoscope.analyze(folder)
    (kept,) = kept_files(folder)
    for damage in (b"", b"{}", b"[" * 100_000, b'{"content_hash": 3}', b"\xff\xfe"):
        kept.write_bytes(damage)
        assert kinetoscope.analyze(folder) == first
        assert kept.read_bytes() != damage


def test_reports_are_in_the_users_own_folder_even_for_the_folder_of_a_run(folder):
    (folder / ".manifest").mkdir()
    kinetoscope.analyze(folder)
    (kept,) = kept_files(folder)
    assert kept.parent.stat().st_mode & 0o077 == 0
    assert not list(folder.glob("**/*.report.json"))


def test_growing_or_special_files_are_not_cached(folder, monkeypatch):
    traces = kinetoscope.load(folder)
    kinetoscope.analyze(traces)
    assert CachedReport.of(["-"], Selection()) is None
    assert CachedReport.of(["s3://bucket/trace.json"], Selection()) is None
    assert CachedReport.of([str(folder / "missing.json")], Selection()) is None
    assert kept_files(folder) == []
