"""Output of ``make help``: six targets first, then all others by group."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def groups() -> dict[str, list[str]]:
    """Return the targets that help lists, by heading."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    printed = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    blocks = [block.splitlines() for block in printed.strip().split("\n\n")]
    assert all(re.fullmatch(r"  [a-z-]+ +\S.*", line) for _, *lines in blocks for line in lines)
    return {heading: [line.split()[0] for line in lines] for heading, *lines in blocks}


def test_help_shows_six_targets_first_and_groups_the_others(groups):
    assert list(groups) == ["first", "use", "test", "build", "measure"]
    assert groups["first"] == ["setup", "demo", "test-quick", "test", "check", "docs"]


def test_help_lists_each_target_once(groups):
    targets = re.findall(r"^([a-z][a-z-]*):(?! \w+ =)", MAKEFILE, re.M)
    assert sorted(name for names in groups.values() for name in names) == sorted(targets)


def test_no_file_of_a_targets_name_can_hide_it(groups):
    (phony,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.M)
    assert {name for names in groups.values() for name in names} <= set(phony.split())
