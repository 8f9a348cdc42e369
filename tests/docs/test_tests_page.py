"""The page on tests: its folders and markers exist, and its example runs."""

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "README.md").read_text(encoding="utf-8")


def test_the_example_of_a_simulated_run_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {"folder": tmp_path}
    exec(code, names)
    assert len(list(tmp_path.rglob("*rank*.json"))) == 2
    assert names["run"].saving_ns_per_step(names["run"].without(0)) > 0


def test_the_folders_and_markers_of_the_page_are_those_there_are():
    (layout,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    folders = {name for line in layout.splitlines() for name in re.findall(r"([a-z_]+)/", line.partition("  ")[0])}
    assert all((TESTS / name).is_dir() for name in folders)
    configuration = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    declared = {marker.partition(":")[0] for marker in configuration["tool"]["pytest"]["ini_options"]["markers"]}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == declared - {"reports_errors"}
