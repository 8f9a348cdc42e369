"""Runs the tests that a change can break, the nearest first, for as long as there is time: ``make test-quick``.

The change is what differs from the branch's beginning on ``main``; on ``main``, what is not committed, or else the last
commit. A test is as near to a changed file as it has imports in between. The last line has the result.
"""

import argparse
import functools
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from test_layers import ROOT, imports_of, module_of

_DEADLINE = "KINETOSCOPE_TEST_UNTIL"
_NO_TIME = "no time left"
_TESTS = ROOT / "tests"
_SLOW = ("integration", "browser", "gpu", "arm")
_ELSEWHERE = ("fuzz", "compat")
"""Tests that have a command of their own, and some an environment."""
_OF_DOCUMENTS = ("test_agreement.py", "test_code_blocks.py", "test_readme.py")
"""Tests in tests/docs that read every document."""
_EXPLANATIONS = ROOT / "src/kinetoscope/analysis/findings/explanations.py"
"""Reads the pages of rules."""
_OF_PAGES = 2
"""The distance from there up to which tests can break by a page."""
_FARTHEST = 99
_FIRST_FILES = 16


def changed_files(base: str | None = None) -> list[str]:
    """Return the files of the change, as paths in the repository."""
    begin = base or _git("merge-base", "main", "HEAD")[0]
    uncommitted = _git("ls-files", "--others", "--exclude-standard") + _git("diff", "--name-only", "HEAD")
    committed = _git("diff", "--name-only", begin, "HEAD")
    return sorted({*uncommitted, *committed}) or _git("diff", "--name-only", "HEAD~1", "HEAD")


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")[
        :-1
    ]


def affected_tests(changed: Iterable[str]) -> list[Path]:
    """Return the test files that the change can break, the nearest first, and among these the quick ones."""
    distances: dict[Path, float] = {}
    tests = [path for path in sorted(_TESTS.rglob("test_*.py")) if path.relative_to(_TESTS).parts[0] not in _ELSEWHERE]
    for path in changed:
        for test, distance in _distances(ROOT / path, tests).items():
            distances[test] = min(distance, distances.get(test, _FARTHEST))
    return sorted(distances, key=lambda test: (_is_slow(test), distances[test], test))


def _is_slow(test: Path) -> bool:
    return test.relative_to(_TESTS).parts[0] in _SLOW


def _distances(path: Path, tests: list[Path]) -> dict[Path, float]:
    """Return the distance of each test from a changed file; unaffected tests are omitted."""
    if path in tests:
        return {path: 0}
    named = [test for test in tests if path.suffix != ".py" and path.name in _text(test)]
    near: dict[Path, float] = dict.fromkeys(named, 1.2)
    if path.suffix in (".c", ".h", ".cpp"):
        near |= _tests_of_c(path, tests)
    if path.suffix == ".md":
        near |= _tests_of_document(path, tests)
        if path.with_suffix(".py").exists():  # the page of a rule
            of_pages = _tests_that_import(_EXPLANATIONS, tests)
            near |= {test: distance for test, distance in of_pages.items() if distance <= _OF_PAGES}
    if "web" in path.relative_to(ROOT).parts[:1]:
        near |= dict.fromkeys((test for test in tests if "browser" in test.parts), 1)
    if _is_found_by_name(path):
        near |= dict.fromkeys((test for test in tests if f'"{path.stem}"' in _text(test)), 1.2)
    imported = _tests_that_import(path, tests)
    return {test: min(each.get(test, _FARTHEST) for each in (near, imported)) for test in near | imported}


def _tests_of_document(path: Path, tests: list[Path]) -> dict[Path, float]:
    """Return the distance of the tests that read all documents, or those of its folder."""
    of_docs = [test for test in tests if test.parent == _TESTS / "docs"]
    near: dict[Path, float] = dict.fromkeys((test for test in of_docs if test.name in _OF_DOCUMENTS), 2)
    if path.parent.parent == ROOT / "docs":
        near |= dict.fromkeys((test for test in of_docs if f'"{path.parent.name}"' in _text(test)), 1.1)
    return near


def _is_found_by_name(path: Path) -> bool:
    """Return whether no file imports this module of ours: its package finds it, as the rules of findings."""
    return ROOT / "src" in path.parents and path.suffix == ".py" and not _users()[path]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _tests_of_c(path: Path, tests: list[Path]) -> dict[Path, float]:
    """Return the distance of the tests that the table of references names for a file in C, or for its folder, and of
    those that import its user."""
    rows = [row.split("|") for row in _text(ROOT / "src/native/README.md").splitlines() if row.startswith("| `")]
    of_file = [row for row in rows if f"{path.stem}.c" in row[1]]
    of_folder = [row for row in rows if f"{path.parent.name}/" in row[1]]
    named = "|".join("|".join(row) for row in of_file or of_folder or rows)
    found = re.findall("`([a-z_/]+[.]py)`", named)
    near: dict[Path, float] = {}
    for source in (ROOT / "src" / "kinetoscope" / name for name in found):
        if source.exists():
            near = {test: distance + 1 for test, distance in _tests_that_import(source, tests).items()} | near
    own = {_TESTS / name for name in (*found, "unit/test_native.py")} & set(tests)
    return near | dict.fromkeys(own, 1)


def _tests_that_import(path: Path, tests: list[Path]) -> dict[Path, float]:
    """Return the number of imports between each test and a Python file, or a command that uses it; a test of the file's
    own name is nearest."""
    users = _users()
    at = [path.parent / "__init__.py" if _is_found_by_name(path) else path]
    found: dict[Path, float] = dict.fromkeys(at, 0)
    while at:
        at = [user for one in at for user in users[one] if found.setdefault(user, found[one] + 1) == found[one] + 1]
        at = list(dict.fromkeys(at))
    near = {test: found[test] for test in tests if test in found}
    for command in [file for file in found if file.parent.name == "cli"]:
        for test in tests:
            if re.search(rf'["\s]{command.stem}["\s]', _text(test)):
                near[test] = min(found[command] + 1.5, near.get(test, _FARTHEST))
    own = (test for test in tests if test.name == f"test_{path.name}" and test.parent.name == path.parent.name)
    return near | dict.fromkeys(own, 0.1)


@functools.cache
def _users() -> Mapping[Path, list[Path]]:
    """Return the files that import each file."""
    folders = (_TESTS, ROOT / "src" / "kinetoscope")
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    files = [path for path in files if path.name != "conftest.py" and path != Path(__file__)]
    by_module = {_module(path): path for path in files}
    users: defaultdict[Path, list[Path]] = defaultdict(list)
    for user in files:
        names = imports_of(user)
        names |= {name.rpartition(".")[0] for name in names}
        for name in names & by_module.keys():
            users[by_module[name]].append(user)
    return users


def _module(path: Path) -> str:
    if _TESTS in path.parents:
        return ".".join(path.relative_to(_TESTS).with_suffix("").parts).removesuffix(".__init__")
    return module_of(path)


# -- as a plugin of pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what would begin too late."""
    if time.time() > float(os.environ.get(_DEADLINE, "inf")):
        pytest.skip(_NO_TIME)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report tests that were not run."""
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if _NO_TIME in str(report.longrepr)]
    files = dict.fromkeys(report.nodeid.partition("::")[0] for report in skipped)
    if files:
        terminalreporter.section(f"not run, for want of time: {len(skipped)} tests")
        terminalreporter.write_line(_count_by_folder(files))


def _count_by_folder(files: Iterable[str]) -> str:
    """Return the number of files in each folder, in a line."""
    folders = Counter(str(Path(name).parent) for name in files)
    return ", ".join(f"{folder}: {count}" for folder, count in folders.items())


def main() -> int:
    """Run them; return pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", help="the change is what differs from COMMIT")
    parser.add_argument("--seconds", metavar="S", type=float, default=90, help="begin no test after S seconds (90)")
    parser.add_argument("--list", action="store_true", help="print the files of tests, and run none")
    arguments = parser.parse_args()
    changed = changed_files(arguments.base)
    tests = [str(test.relative_to(ROOT)) for test in affected_tests(changed)]
    print(f"{len(changed)} changed files; they can break {len(tests)} files of tests.", flush=True)
    if arguments.list or not tests:
        print("\n".join(tests))
        return 0
    deadline = time.time() + arguments.seconds
    environment = os.environ | {_DEADLINE: str(deadline), "PYTHONPATH": str(_TESTS)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "support.tools.affected_tests",
        "-n",
        "logical",
        "--dist",
        "loadfile",
        "-r",
        "fE",
    ]
    # Each process reads all files before it runs the first test: a few files first, then twice as many, and so on.
    codes, num_files = list[int](), _FIRST_FILES
    while tests and time.time() < deadline:
        codes.append(subprocess.run([*command, *tests[:num_files]], cwd=ROOT, env=environment).returncode)
        del tests[:num_files]
        num_files *= 2
    if tests:
        print(f"Not run, for want of time: {len(tests)} more files ({_count_by_folder(tests)}).")
        print("FOR=300 gives `make test-quick` 300 seconds.")
    code = max((code for code in codes if code != pytest.ExitCode.NO_TESTS_COLLECTED), default=0)
    print("Tests failed: see above." if code else "All tests that were run passed.")
    return code


if __name__ == "__main__":
    sys.exit(main())
