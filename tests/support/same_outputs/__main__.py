"""Print what differs between this tree's outputs and those of an older commit: ``make same BASE=COMMIT``.

Exit code 1 if anything differs. Nothing is kept between runs.
"""

import argparse
import difflib
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from support.same_outputs.outputs import outputs_of
from support.same_outputs.versions import Version, this_version, version_of

ABSENT = "(absent)"
_SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas.md"
_PARENTS_OF_RENAMED_KEYS = {"evidence", "all_steps", "pieces", "owners", "hang"}
_RENAMED_KEY = re.compile(r"^\| `(\w+)` \| `(\w+)` \|", re.MULTILINE)
_MAX_LINES = 6
_MAX_CHARS = 300


def main() -> int:
    """Compare the outputs, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make same", description=__doc__)
    parser.add_argument("base", help="the commit to compare with, such as HEAD or main~3")
    parser.add_argument("--jobs", type=int, default=2, help="how many inputs are read at once (default: 2)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kinetoscope-same-") as temporary:
        folder = Path(temporary)
        with version_of(options.base, folder) as base:
            inputs = folder / "inputs"
            package = "support.same_outputs" if (base.root / "tests" / "support").is_dir() else "same_outputs"
            made = base.run("-m", f"{package}.inputs", str(inputs), cwd=folder)
            if made.returncode:
                print(f"The inputs could not be made with {options.base}:\n{made.stderr}", file=sys.stderr)
                return 2
            return _compare(base, sorted(inputs.iterdir()), folder, options.jobs)


def _compare(base: Version, inputs: list[Path], folder: Path, jobs: int) -> int:
    sides, renamed = (base, this_version()), read_renamed_keys()
    num_outputs = num_differ = 0
    with ThreadPoolExecutor(jobs) as pool:
        # Both versions read an input at the same path, so that what they print can be equal.
        rows = pool.map(
            lambda source: [outputs_of(side, source, folder / f"{source.name}-out") for side in sides], inputs
        )
        for number, (source, (before, after)) in enumerate(zip(inputs, rows, strict=True), 1):
            before = update_schema(before, renamed)
            print(f"\r{number} of {len(inputs)} inputs", end="", file=sys.stderr, flush=True)
            names = [*dict.fromkeys([*before, *after])]
            differing = [name for name in names if before.get(name, ABSENT) != after.get(name, ABSENT)]
            num_outputs, num_differ = num_outputs + len(names), num_differ + len(differing)
            for name in differing:
                print(f"\n{source.name}, {name}")
                lines = list(differences(before.get(name, ABSENT), after.get(name, ABSENT)))
                for line in lines[:_MAX_LINES]:
                    print(f"  {line[:_MAX_CHARS]}")
                if len(lines) > _MAX_LINES:
                    print(f"  and {len(lines) - _MAX_LINES:,} more")
    print(f"\n{num_outputs:,} outputs of {len(inputs)} inputs: {num_differ:,} differ")
    return int(num_differ > 0)


def read_renamed_keys() -> dict[str, str]:
    """Return the new name of each key that schema 2 renames, from the docs."""
    return dict(_RENAMED_KEY.findall(_SCHEMAS.read_text(encoding="utf-8")))


def update_schema(document: Any, renamed: Mapping[str, str], parent: str = "") -> Any:
    """Return a document with the keys of schema 2, so that it can be compared with those of this version."""
    if isinstance(document, list):
        return [update_schema(item, renamed, parent) for item in document]
    if not isinstance(document, dict):
        return document
    names = renamed if parent in _PARENTS_OF_RENAMED_KEYS else {}
    found = {names.get(name, name): update_schema(value, renamed, name) for name, value in document.items()}
    return found | {"schema": 2} if found.get("schema") == 1 else found


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Yield a line for each place at which two documents differ."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from differences(before.get(name, ABSENT), after.get(name, ABSENT), f"{place}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{place}[{index}]")
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        yield from (f"{place} {line}" for line in islice(lines, 2, None) if not line.startswith("@@"))
    else:
        yield f"{place}: {before!r:.120} -> {after!r:.120}"


if __name__ == "__main__":
    sys.exit(main())
