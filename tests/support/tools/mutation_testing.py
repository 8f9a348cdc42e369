"""Mutation testing: small changes in the source of a package, one at a time; prints those that none of its tests
notices.

    python tests/support/tools/mutation_testing.py PKG NUMBER SEED

``NUMBER`` of all possible changes are drawn at random, the same ones for the same ``SEED``. The tests are those in
``tests/unit/PKG``. First all tests run once, to find which lines each one runs, and how long it takes; those that fail
are named and left out. Then, for each change, the tests that run the changed line are run until one fails: first those
of the file named after the changed one, and among these and the others the fastest first. If no test runs that line,
all tests are run, since a process that a test starts may run it. Tests run in copies of this tree, so nothing here
changes.
"""

import ast
import difflib
import math
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cosmic_ray.commands
import cosmic_ray.plugins
from cosmic_ray.mutating import use_mutation
from cosmic_ray.work_db import WorkDB, use_db
from coverage import CoverageData

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.fork_server import run_forked

ROOT = Path(__file__).parents[3]
NOISE = "BitOr"  # it changes types such as `int | None`, and then the module cannot be imported
NUM_WORKERS = 2
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "--timeout", "60", "--hypothesis-profile", "first-failure"]
# A change may make any process run forever, also one that a test has started.
RUN_TESTS = """
import os, resource, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # of a job in the background it is ignored
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
sys.path[0] = os.path.abspath("src")
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


@dataclass(frozen=True)
class PackageTests:
    """Tests of a package: the duration of each, and the lines it runs."""

    package: str
    seconds: dict[str, float]
    by_line: dict[tuple[str, int], set[str]]

    def find_affected(self, change: Any) -> list[str]:
        """Return the tests that run the changed statement (or its file, if it runs at import), or all tests."""
        path = str(change.module_path)
        statements = [node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.stmt)]
        around = [node for node in statements if _first_line(node) <= change.start_pos[0] <= (node.end_lineno or 0)]
        innermost = max(around, key=_first_line)
        lines = range(_first_line(innermost), (innermost.end_lineno or 0) + 1)
        tests = set().union(*(self.by_line.get((path, line), set()) for line in lines))
        if "" in tests:
            tests |= set().union(*(found for (file, _), found in self.by_line.items() if file == path))
        nearest = f"/test_{Path(path).stem}.py::"
        passing = self.seconds.keys() & tests or self.seconds.keys()
        return sorted(passing, key=lambda test: (nearest not in test, self.seconds[test], test))


def main(package: str, number: int, seed: int) -> None:
    """Draw changes, try them, and print those that no test noticed."""
    drawn = _draw(package, number, seed)
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copies: Any = multiprocessing.Queue()
        for worker in range(NUM_WORKERS):
            copy = Path(folder, str(worker))
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "runs"))
            copies.put(str(copy))
        with multiprocessing.Pool(NUM_WORKERS, _enter, (copies,)) as pool:
            files = sorted(map(str, Path("tests", "unit", package).rglob("test_*.py")))
            parts = [files[begin::NUM_WORKERS] for begin in range(min(NUM_WORKERS, len(files)))]
            tests = _joined(pool.starmap(_run, [(package, part) for part in parts], chunksize=1))
            num_survivors = _show(pool.imap_unordered(_try, [(change, tests) for change in drawn]), len(drawn))
    print(f"\nOf {len(drawn)} changes of {package}/, the tests noticed {len(drawn) - num_survivors}.")


def _show(survivors: Iterable[str], number: int) -> int:
    """Print the changes that no test noticed, and the progress; return their number."""
    num_survivors = 0
    for num_tried, diff in enumerate(survivors, start=1):
        num_survivors += bool(diff)
        print(diff + "\n" if diff else "", end="", flush=True)
        print(f"{num_tried} of {number} tried", end="\r", file=sys.stderr, flush=True)
    return num_survivors


def _draw(package: str, number: int, seed: int) -> list[Any]:
    paths = sorted(Path("src", "kinetoscope", package).rglob("*.py"))
    with tempfile.TemporaryDirectory() as folder, use_db(str(Path(folder, "all")), WorkDB.Mode.create) as every:
        cosmic_ray.commands.init(paths, every, {})
        changes = [change for item in every.work_items for change in item.mutations]
    changes = [change for change in changes if NOISE not in change.operator_name]
    changes.sort(key=lambda change: (str(change.module_path), change.operator_name, change.occurrence))
    return random.Random(seed).sample(changes, min(number, len(changes)))


def _enter(copies: Any) -> None:
    """Give this worker a copy of the tree, whose source the tests find first."""
    copy = copies.get()
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(Path(copy, "src"))
    # Two changes may be made within one second, which byte code cannot distinguish.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def _joined(parts: Sequence[PackageTests]) -> PackageTests:
    seconds, by_line = dict[str, float](), dict[tuple[str, int], set[str]]()
    for part in parts:
        seconds |= part.seconds
        for line, tests in part.by_line.items():
            by_line.setdefault(line, set()).update(tests)
    return PackageTests(parts[0].package, seconds, by_line)


def _run(package: str, files: list[str]) -> PackageTests:
    """Run the tests of these files. Those that fail are left out: on a busy machine, one that needs a free processor
    may."""
    watching = (
        f"--cov=src/kinetoscope/{package} --cov-context=test --cov-config=/dev/null --cov-report= "
        "--junitxml=times.xml --maxfail=0".split()
    )
    output = _failure_of(package, [*files, *watching], timeout_s=1800)
    if output and not output.endswith("exit status 1"):
        raise RuntimeError(f"The tests do not run without a change.\n{output}")
    seconds: dict[str, float] = {}
    for case in ElementTree.parse("times.xml").iter("testcase"):
        test = _node_id(case.attrib["classname"], case.attrib["name"])
        if case.find("failure") is None and case.find("error") is None:
            seconds[test] = float(case.attrib["time"])
        else:
            print(f"left out, since it fails without a change: {test}", flush=True)
    lines = CoverageData(".coverage")
    lines.read()
    by_line = {
        (str(Path(file).relative_to(Path.cwd())), line): set().union(*(_tests_in(one, seconds) for one in contexts))
        for file in lines.measured_files()
        for line, contexts in lines.contexts_by_lineno(file).items()
    }
    return PackageTests(package, seconds, by_line)


def _tests_in(context: str, tests: Iterable[str]) -> set[str]:
    """Return the test of a context; for the setup of a fixture, all tests of its file, which may share its result."""
    test, _, phase = context.rpartition("|")
    file = test.partition("::")[0]
    return {test, *(one for one in tests if phase == "setup" and one.startswith(f"{file}::"))}


def _node_id(module: str, name: str) -> str:
    return f"{module.replace('.', '/')}.py::{name}"


def _first_line(node: Any) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])


def _failure_of(package: str, arguments: list[str], timeout_s: float) -> str:
    """Return the output of failing tests; empty if all pass."""
    modules = ("hypothesis", "pytest", *(["torch"] if package == "torch" else []))
    try:
        done = run_forked(modules, RUN_TESTS, math.ceil(timeout_s), *OPTIONS, *arguments, timeout_s=timeout_s)
    except TimeoutError as error:
        return repr(error)
    return done.stdout + done.stderr + f"exit status {done.returncode}" if done.returncode else ""


def _try(given: tuple[Any, PackageTests]) -> str:
    """Return the change, if no test noticed it; else an empty text."""
    change, tests = given
    chosen = tests.find_affected(change)
    operator = cosmic_ray.plugins.get_operator(change.operator_name)(**change.operator_args)
    with use_mutation(change.module_path, operator, change.occurrence) as (before, after):
        if _failure_of(tests.package, chosen, timeout_s=4 * sum(tests.seconds.values()) + 20):
            return ""
    path = str(change.module_path)
    return "\n".join(difflib.unified_diff(before.split("\n"), (after or "").split("\n"), path, path, lineterm=""))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
