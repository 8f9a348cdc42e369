"""Branch coverage of each package, compared with its floor: ``make coverage``.

``python tests/support/tools/coverage_by_package.py FILE`` reads the JSON of coverage.py. `tests/data/coverage.json` has
the floors in whole percent; ``--write`` sets them to the measured values less half a point, rounded down, and lowers
none: some branches are run at some speeds of the machine only.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

_SPEED_MARGIN = 0.5
FLOORS = Path(__file__).parents[2] / "data" / "coverage.json"


def read_percentages(path: Path) -> dict[str, float]:
    """Return the percentage of lines and branches covered, by package of ours."""
    covered, total = defaultdict[str, int](int), defaultdict[str, int](int)
    for name, file in json.loads(path.read_text(encoding="utf-8"))["files"].items():
        parts = Path(name).parts
        below = parts[parts.index("kinetoscope") + 1 :]
        num_parts = 2 if below[0] == "core" and len(below) > 2 else 1
        package = "/".join(below[:num_parts]) if len(below) > 1 else "(top level)"
        summary = file["summary"]
        covered[package] += summary["covered_lines"] + summary["covered_branches"]
        total[package] += summary["num_statements"] + summary["num_branches"]
    return {package: 100 * covered[package] / num if num else 100.0 for package, num in sorted(total.items())}


def list_shortfalls(percentages: dict[str, float], floors: dict[str, int]) -> list[str]:
    """Return a sentence for each package that is below its floor."""
    return [
        f"{package}: {found:.1f} %, floor {floors[package]} %: cover the new code, or remove what is not needed."
        for package, found in percentages.items()
        if found < floors.get(package, 0)
    ]


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a package is below its floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args(arguments)
    floors = json.loads(FLOORS.read_text(encoding="utf-8")) if FLOORS.exists() else {}
    percentages = read_percentages(chosen.file)
    for package, found in percentages.items():
        print(f"{package:16} {found:5.1f} %   floor {floors.get(package, 'none')}")
    if chosen.write:
        raised = {
            package: max(int(found - _SPEED_MARGIN), floors.get(package, 0)) for package, found in percentages.items()
        }
        FLOORS.write_text(json.dumps(raised, indent=1) + "\n", encoding="utf-8")
        return 0
    shortfalls = list_shortfalls(percentages, floors)
    print("\n".join(shortfalls))
    return 1 if shortfalls else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
