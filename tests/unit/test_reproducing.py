"""A failing property test prints a command that fails with the same example."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
FAILING = """
from hypothesis import Phase, given, settings, strategies


@settings(database=None, phases=[Phase.generate])
@given(strategies.integers(0, 2**64))
def test_numbers_are_small(number):
    print("example", number)
    assert number < 2**8
"""


def run_pytest(folder: Path, *arguments: str) -> str:
    """Return the output of pytest on a test file outside of the repository, with the conftest of ours."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-c", TESTS.parent / "pyproject.toml"]
    command += [f"--rootdir={folder}", "-o", f"pythonpath={TESTS}", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


def test_the_printed_command_of_a_failing_property_test_reproduces_its_example(tmp_path):
    (tmp_path / "test_numbers.py").write_text(FAILING)
    printed = run_pytest(tmp_path, "test_numbers.py")
    (command,) = re.findall(r"^-+ Reproduce with -+\n(.+)$", printed, re.M)
    words = shlex.split(command)
    arguments = words[words.index("pytest") + 1 :]
    assert arguments[0] == "test_numbers.py::test_numbers_are_small"
    again = run_pytest(tmp_path, *arguments)
    assert re.findall(r"example \d+", again) == re.findall(r"example \d+", printed) != []
