"""Groups of runs that can be compared."""

import pytest

from kinetoscope.core.paths.run_groups import RunGroup, find_run_group, number_groups, store_command_hash


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_folders_that_differ_in_a_time_or_number_are_of_one_group(tmp_path):
    assert find_run_group(tmp_path / "20261128-220501").has(find_run_group(tmp_path / "20261129-081500"))
    assert find_run_group(tmp_path / "lr3-run1").has(find_run_group(tmp_path / "lr4-run12"))
    assert not find_run_group(tmp_path / "main").has(find_run_group(tmp_path / "mine"))


def test_commands_decide_where_they_are_known(tmp_path, monkeypatch):
    for name, command in (("slow", ["python", "a.py"]), ("fixed", ["python", "a.py"]), ("slow2", ["python", "b.py"])):
        store_command_hash(tmp_path / name, command)
    assert find_run_group(tmp_path / "slow").has(find_run_group(tmp_path / "fixed"))
    assert not find_run_group(tmp_path / "slow").has(find_run_group(tmp_path / "slow2"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store_command_hash(tmp_path / "fixed", ["python", "a.py"])
    assert not find_run_group(tmp_path / "slow").has(find_run_group(tmp_path / "fixed")), (
        "another directory, another program"
    )


def test_nothing_of_a_command_is_kept_and_only_in_the_cache(tmp_path, cache):
    (tmp_path / "run").mkdir()
    store_command_hash(tmp_path / "run", ["python", "train.py", "--token=hunter2"])
    assert not list((tmp_path / "run").iterdir())
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert len(kept) == 2
    assert not any(b"hunter2" in path.read_bytes() for path in kept)
    first = find_run_group(tmp_path / "run").command
    for path in kept:
        path.unlink()
    store_command_hash(tmp_path / "run", ["python", "train.py", "--token=hunter2"])
    assert find_run_group(tmp_path / "run").command != first, "another salt"


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, cache):
    cache.write_text("a file where the folder should be")
    store_command_hash(tmp_path / "run", ["python"])
    assert find_run_group(tmp_path / "run").command is None


def test_runs_have_the_number_of_the_last_group_that_has_them():
    runs = [("run#", "a"), ("slow", "b"), ("fixed", "b"), ("run#", None), ("run#", "a"), ("run#", "c"), ("main", None)]
    assert number_groups(RunGroup(*run) for run in runs) == [0, 1, 1, 0, 0, 0, 6]
    assert number_groups([]) == []
