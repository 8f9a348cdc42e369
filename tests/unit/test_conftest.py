"""The fixtures and hooks of every test: commands that reproduce a failure, and checks that nothing is left behind."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FAILING = """
from hypothesis import Phase, given, settings, strategies


@settings(database=None, phases=[Phase.generate])
@given(strategies.integers(0, 2**64))
def test_numbers_are_small(number):
    print("example", number)
    assert number < 2**8
"""

LEAVING = """
import signal

import pytest


def install():
    signal.signal(signal.SIGINT, lambda number, frame: None)


@pytest.fixture(scope="module")
def failing():
    install()
    raise RuntimeError("planted")


def test_one(failing):
    pass
"""
NEXT = """
import signal

import pytest


def test_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
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


@pytest.mark.parametrize("where", ["the test", "a fixture of the file"])
def test_leftover_signal_handler_fails_its_own_test_and_no_later_one(tmp_path, where):
    leaving = LEAVING if where != "the test" else LEAVING.replace("(failing):\n    pass", "():\n    install()")
    (tmp_path / "test_a.py").write_text(leaving)
    (tmp_path / "test_b.py").write_text(NEXT)
    printed = run_pytest(tmp_path)
    assert "signal handlers left installed: ['SIGINT']" in printed
    assert re.findall(r"(?:ERROR|FAILED) (test_\w+)\.py::\w+ - \w+", printed).count("test_b") == 0
    assert "passed" in printed


SKIPPING = """
import pytest

from support.chromium import MISSING


@pytest.fixture
def browser():
    pytest.skip(MISSING)


@pytest.mark.parametrize("number", range(3))
def test_one(browser, number):
    pass


def test_other(browser):
    pass


def test_third():
    pytest.skip("another reason")
"""


def test_without_chromium_one_line_has_the_number_of_skipped_tests(tmp_path):
    for number in (1, 2):
        (tmp_path / f"test_pages{number}.py").write_text(SKIPPING)
    lines = [line for line in run_pytest(tmp_path).splitlines() if line.startswith("SKIPPED")]
    assert [line.partition("] ")[0] for line in lines] == ["SKIPPED [8", "SKIPPED [1", "SKIPPED [1"]
    assert lines[0].endswith("chromium.py: Chromium is not installed")


UNSTABLE = """
from pathlib import Path


def test_second_time():
    marker = Path("marker")
    was_there = marker.exists()
    marker.touch()
    assert was_there, "planted"
"""


def test_first_failure_of_a_test_that_ran_again_is_printed(tmp_path):
    (tmp_path / "test_unstable.py").write_text(UNSTABLE)
    printed = run_pytest(tmp_path, "--reruns", "1")
    assert re.search(r"^-+ test_unstable.py::test_second_time failed and ran again -+$", printed, re.M)
    assert "AssertionError: planted" in printed
    assert re.search(r"^1 passed,.* 1 rerun in", printed, re.M)
