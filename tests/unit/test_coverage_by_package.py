"""Tests of the coverage by package, on a file as coverage.py writes it."""

import json

import pytest

from support.tools import coverage_by_package


def measured(statements, branches):
    """Return one file's entry, with all of them run but one."""
    counts = {"num_statements": statements, "num_branches": branches}
    return {"summary": counts | {"covered_lines": statements - 1, "covered_branches": branches}}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(coverage_by_package, "FLOORS", tmp_path / "floors.json")
    files = {"src/kinetoscope/merge/check.py": measured(8, 2), "src/kinetoscope/merge/align.py": measured(8, 2)}
    files["src/kinetoscope/native.py"] = measured(3, 1)
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps({"files": files}))
    return path


def test_lines_and_branches_of_a_package_are_added_up(file):
    assert coverage_by_package.read_percentages(file) == {"(top level)": 75, "merge": 90}


def test_a_package_below_its_floor_fails(file, capsys):
    assert coverage_by_package.main([str(file)]) == 0
    coverage_by_package.FLOORS.write_text('{"merge": 91}')
    assert coverage_by_package.main([str(file)]) == 1
    assert "merge: 90.0 %, floor 91 %" in capsys.readouterr().out


def test_written_floors_are_rounded_down_and_never_lowered(file):
    coverage_by_package.FLOORS.write_text('{"merge": 95}')
    coverage_by_package.main([str(file), "--write"])
    assert json.loads(coverage_by_package.FLOORS.read_text()) == {"(top level)": 74, "merge": 95}
