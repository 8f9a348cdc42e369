"""Costs of this tree compared with those of an older commit: ``python -m benchmarks.versions COMMIT``."""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.files.traces import RANK_BYTES, write_rank_traces

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.same_outputs.versions import Version, this_version, version_of

_COSTS = Path(__file__).parent / "costs.py"
_NUM_RANKS = 4


def main() -> None:
    """Measure both versions in turns, and print the median of each cost and the ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("base", help="the commit to compare with, such as main~3")
    parser.add_argument("--rounds", type=int, default=7, help="how often each version is measured (default: 7)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kinetoscope-versions-") as temporary:
        folder = Path(temporary)
        traces = write_rank_traces(folder, _NUM_RANKS, RANK_BYTES)
        with version_of(options.base, folder) as base:
            sides = {"before": base, "after": this_version()}
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
            for number in range(options.rounds):
                order = list(sides) if number % 2 else list(reversed(sides))
                for name in order:
                    rounds[name].append(_measure(sides[name], folder / f"{name}{number}", traces))
    _print(rounds["before"], rounds["after"])


def _measure(version: Version, folder: Path, traces: list[Path]) -> dict[str, float]:
    folder.mkdir()
    done = version.run(str(_COSTS), str(folder), *map(str, traces), cwd=folder)
    if done.returncode:
        raise SystemExit(f"{version.root} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def _print(before: list[dict[str, float]], after: list[dict[str, float]]) -> None:
    table = Table("cost", "before", "after", "after / before", "of single rounds", box=None, pad_edge=False)
    for name in before[0]:
        old, new = ([costs[name] for costs in side] for side in (before, after))
        ratios = sorted(b / a for a, b in zip(old, new, strict=True))
        ratio = statistics.median(new) / statistics.median(old)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        table.add_row(name, _format(statistics.median(old)), _format(statistics.median(new)), f"{ratio:.2f}", spread)
    Console(width=120).print(table)


def _format(seconds: float) -> str:
    unit, name = next(
        (unit, name)
        for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
        if seconds >= unit or unit == 1e-9
    )
    return f"{seconds / unit:.3g} {name}"


if __name__ == "__main__":
    main()
