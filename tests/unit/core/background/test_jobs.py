"""core/background/jobs.py: internal jobs, each in a process of its own."""

import re
import subprocess
from pathlib import Path

import pytest

from kinetoscope.core.background.jobs import job_command

ROOT = Path(__file__).parents[4]
JOB = """
import sys
from kinetoscope.errors import TraceFileError
from kinetoscope.core.background.jobs import run_job
def work(path, numbers):
    print(repr(path), numbers)
    if path == "own":
        raise TraceFileError("no trace\\x1b")
    if path == "system":
        open("/no/such")
    return len(numbers)
run_job(work)
"""


def run(tmp_path, *arguments):
    (tmp_path / "some_job.py").write_text(JOB)
    command = job_command("some_job", *arguments)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_job_gets_its_arguments_even_non_utf_8_paths_and_returns_its_exit_status(tmp_path):
    assert run(tmp_path, "a\udc80 b", [1, 2]) == (2, "'a\\udc80 b' [1, 2]\n", "")


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("own", "error: no trace\\x1b\n"),
        ("system", "error: Cannot read or write /no/such: No such file or directory.\n"),
    ],
)
def test_an_expected_error_is_one_line_on_stderr(kind, line, tmp_path):
    status, _, errors = run(tmp_path, kind, [])
    assert (status, errors) == (1, line)


def test_the_architecture_page_lists_all_jobs():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(kinetoscope\.[\w.]+)` \|", page, re.MULTILINE)
    source = ROOT / "src"
    jobs = [path for path in (source / "kinetoscope").rglob("*.py") if "\n    run_job(" in path.read_text()]
    assert sorted(listed) == sorted(".".join(path.relative_to(source).with_suffix("").parts) for path in jobs)
    assert all(path.stem.endswith("_job") for path in jobs)


def test_no_command_has_a_hidden_option():
    assert [path for path in (ROOT / "src").rglob("*.py") if "argparse.SUPPRESS" in path.read_text()] == []
