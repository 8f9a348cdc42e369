"""Changes the source of a room in many small ways, one at a time, and says which changes no test of the room notices.

    python tests/mutate.py ROOM NUMBER SEED

``NUMBER`` of all possible changes are drawn by chance, the same ones for the same ``SEED``. The tests are those in
``tests/unit/ROOM``; each runs in a copy of this tree, so that nothing here changes.
"""

import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cosmic_ray.commands
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome
from rich.progress import track

HOUSE = Path(__file__).parents[1]
NOISE = "BitOr"  # it changes types, as in `int | None`, which then cannot be imported
NUM_WORKERS = 2


def main(room: str, number: int, seed: int) -> None:
    """Draws, tries, and prints what survived."""
    drawn = _draw(room, number, seed)
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copies: Any = multiprocessing.Queue()
        for worker in range(NUM_WORKERS):
            copy = Path(folder, str(worker))
            shutil.copytree(HOUSE, copy, ignore=shutil.ignore_patterns(".*", "build", "runs"))
            copies.put(str(copy))
        command = f"{sys.executable} -m pytest -q -x -p no:cacheprovider --timeout 60 tests/unit/{room}"
        with multiprocessing.Pool(NUM_WORKERS, _enter, (copies,)) as pool:
            timeout_s = 4 * pool.apply(_time_of, (command,)) + 20
            tries = pool.imap_unordered(_try, [(mutation, command, timeout_s) for mutation in drawn])
            survivors = [diff for diff in track(tries, f"{len(drawn)} changes", len(drawn)) if diff]
    print("\n\n".join(sorted(survivors)))
    print(f"\nOf {len(drawn)} changes of {room}/, the tests noticed {len(drawn) - len(survivors)}.")


def _draw(room: str, number: int, seed: int) -> list[Any]:
    paths = sorted(Path("src", "kinetoscope", room).rglob("*.py"))
    with tempfile.TemporaryDirectory() as folder, use_db(str(Path(folder, "all")), WorkDB.Mode.create) as every:
        cosmic_ray.commands.init(paths, every, {})
        mutations = [mutation for item in every.work_items for mutation in item.mutations]
    mutations = [mutation for mutation in mutations if NOISE not in mutation.operator_name]
    mutations.sort(key=lambda mutation: (str(mutation.module_path), mutation.operator_name, mutation.occurrence))
    return random.Random(seed).sample(mutations, min(number, len(mutations)))


def _enter(copies: Any) -> None:
    """Gives this worker a copy of its own; the tests find its source first."""
    copy = copies.get()
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(Path(copy, "src"))


def _time_of(command: str) -> float:
    begin = time.monotonic()
    subprocess.run(command.split(), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def _try(given: tuple[Any, str, float]) -> str:
    """The change, if no test noticed it; else nothing."""
    mutation, command, timeout_s = given
    result = mutate_and_test([mutation], command, timeout_s)
    return (result.diff or str(mutation)) if result.test_outcome is TestOutcome.SURVIVED else ""


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
