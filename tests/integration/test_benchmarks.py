"""The benchmarks run from one command and write ratios. The ratios are not asserted, since machines differ."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.__main__ import choose_suites  # noqa: E402


def bench(results: Path, *suites: str) -> subprocess.CompletedProcess[str]:
    only = [word for suite in suites for word in ("--only", suite)]
    command = [sys.executable, "-m", "benchmarks", "--quick", "--results", str(results), *only]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def read(results: Path, suite: str) -> dict[str, Any]:
    return json.loads((results / f"{suite}.json").read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    done = bench(folder, "import_time", "marker_cost")
    assert done.returncode == 0, done.stderr
    assert "marker with, active" in done.stdout
    return folder


def test_quick_benchmarks_print_a_table_and_write_their_ratios(results):
    assert sorted(path.name for path in results.iterdir()) == ["import_time.json", "marker_cost.json"]

    import_time = read(results, "import_time")
    assert import_time["ratios"]["import kinetoscope / bare interpreter"] > 0
    assert [target["asked_for"] for target in import_time["targets"]] == ["< 30 ms"]

    marker_cost = read(results, "marker_cost")
    assert marker_cost["quick"]
    assert marker_cost["ratios"]["empty with, C type"] == 1
    assert {"marker with, active", "marker with, skipped", "empty with, Python class"} <= set(marker_cost["ratios"])
    assert all(ratio > 0 for ratio in marker_cost["ratios"].values())
    assert marker_cost["recorder"].endswith("Span")


def test_recording_of_modules_is_compared_with_hooks(tmp_path):
    done = bench(tmp_path, "modules")
    assert done.returncode == 0, done.stderr
    assert read(tmp_path, "modules")["ratios"]["a call: ours / torch's empty global hooks"] > 0


def test_results_describe_the_machine_without_naming_it(results):
    machine = read(results, "import_time")["machine"]
    assert set(machine) == {"cpu", "cores", "system", "python", "torch", "kinetoscope"}
    assert str(ROOT) not in (results / "import_time.json").read_text()


def test_an_unknown_suite_is_refused_with_the_names_of_those_there_are(tmp_path):
    done = bench(tmp_path, "nonsense")
    assert done.returncode == 2
    assert "marker_cost" in done.stderr


def test_without_chromium_one_line_names_the_suites_that_need_it(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    suites = choose_suites(None)
    assert {"report", "run_list"}.isdisjoint(suites)
    assert "status" in suites
    assert capsys.readouterr().out == "report, run_list: not measured, because Chromium is not installed.\n"
    with pytest.raises(SystemExit, match="run_list: not measured, because Chromium is not installed"):
        choose_suites(["run_list"])
    assert choose_suites(["status"]) == ["status"]
