"""The pages on tests: their files, folders and markers exist, and the example of trainsim runs."""

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "README.md").read_text(encoding="utf-8")
SIMULATOR = (TESTS / "trainsim" / "README.md").read_text(encoding="utf-8")
SUPPORT = (TESTS / "support" / "README.md").read_text(encoding="utf-8")


def test_the_example_of_a_simulated_run_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", SIMULATOR, re.DOTALL)
    names = {"folder": tmp_path}
    exec(code, names)
    assert len(list(tmp_path.rglob("*rank*.json"))) == 2
    assert names["finding"] == ["straggler"]
    assert names["saving_ns"] > 0


def test_the_folders_and_markers_of_the_page_are_those_there_are():
    (layout,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    folders = {name for line in layout.splitlines() for name in re.findall(r"([a-z_]+)/", line.partition("  ")[0])}
    assert all((TESTS / name).is_dir() for name in folders)
    configuration = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    declared = {marker.partition(":")[0] for marker in configuration["tool"]["pytest"]["ini_options"]["markers"]}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == declared - {"reports_errors"}


def test_readme_of_support_lists_each_file():
    folder = TESTS / "support"
    modules = {path.name for each in ("", "programs", "tools") for path in (folder / each).glob("*.py")}
    packages = {f"{path.name}/" for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
    listed, there = set(re.findall(r"^\| `([\w/.]+)` \|", SUPPORT, re.M)), (modules - {"__init__.py"}) | packages
    assert listed == there, f"tests/support/README.md differs in {listed ^ there}"


def test_readme_of_the_simulator_lists_its_files_and_kinds_of_faults():
    settings = (TESTS / "trainsim" / "settings.py").read_text(encoding="utf-8")
    (table,) = re.findall(r"^FINDINGS.*?\{(.*?)^\}", settings, re.M | re.DOTALL)
    (faults,) = re.findall(r"## Faults\n(.*?)##", SIMULATOR, re.DOTALL)
    rows = " ".join(re.findall(r"^\| (`.*?) \|", faults, re.M))
    listed, kinds = set(re.findall(r"`(\w+)`", rows)), set(re.findall(r'"(\w+)":', table))
    assert listed == kinds, f"the table of faults in tests/trainsim/README.md differs in {listed ^ kinds}"
    files = {path.name for path in (TESTS / "trainsim").glob("*.py")} - {"__init__.py"}
    assert set(re.findall(r"`(\w+\.py)`", SIMULATOR.partition("## Files")[2])) == files
