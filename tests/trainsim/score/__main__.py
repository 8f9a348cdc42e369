"""The command behind `make score`."""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from trainsim.score.catalogue import BY_NAME, SCENARIOS
from trainsim.score.output import Score, format_details
from trainsim.score.processes import judge_all
from trainsim.score.scenario import Scenario

ROOT = Path(__file__).parents[3]
TEMPLATE = Path(__file__).with_name("page.md")
MIN_RUNS_OF_PAGE = 20


def main() -> int:
    """Score the requested scenarios, print the result, and write it. Return 1 if nothing was scored."""
    options = _parse_options()
    scenarios = [BY_NAME[name] for name in options.scenario] if options.scenario else list(SCENARIOS)
    commit = _read_commit()
    jobs = [(scenario.name, seed) for scenario in scenarios for seed in _seeds(scenario, commit, options)]
    print(f"commit {commit}; {len(jobs)} runs of {len(scenarios)} scenarios, {options.jobs} processes", flush=True)
    for scenario in scenarios:
        print(f"  {scenario.name}: SEED={_first_seed(scenario, commit, options)}")
    verdicts = sorted(judge_all(jobs, options.jobs), key=lambda one: jobs.index((one.scenario, one.seed)))
    if options.verbose:
        for verdict in verdicts:
            print(format_details(BY_NAME[verdict.scenario].draw(verdict.seed), verdict), end="\n\n")
    score = Score(scenarios, verdicts, commit=commit, date=datetime.now(UTC).date().isoformat())
    print("\n" + score.format_text())
    output = ROOT / "build" / "score.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(score.to_dict(), indent=1), encoding="utf-8")
    print(f"\n{sum(one.cpu_s for one in verdicts):.0f} s of CPU time; written: {output.relative_to(ROOT)}", end="")
    if options.page or (not options.scenario and options.runs >= MIN_RUNS_OF_PAGE):
        page = ROOT / "docs" / "score.md"
        page.write_text(score.format_page(TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")
        print(f", {page.relative_to(ROOT)}", end="")
    print()
    return 0 if verdicts else 1


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make score", description="Score the analysis on simulated runs.")
    parser.add_argument("--runs", type=int, default=20, help="runs of each scenario")
    parser.add_argument("--scenario", action="append", choices=sorted(BY_NAME), help="default: all")
    parser.add_argument("--seed", type=int, help="the first seed; default: from the hash of the commit")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--verbose", action="store_true", help="print settings, expectations and findings")
    parser.add_argument(
        "--page", action="store_true", help="write docs/score.md also if there are few runs, or not all scenarios"
    )
    return parser.parse_args()


def _seeds(scenario: Scenario, commit: str, options: argparse.Namespace) -> Sequence[int]:
    first = _first_seed(scenario, commit, options)
    return range(first, first + options.runs)


def _first_seed(scenario: Scenario, commit: str, options: argparse.Namespace) -> int:
    """Return the seed given, else one that cannot be chosen: from the names of commit and scenario."""
    if options.seed is not None:
        return options.seed
    digest = hashlib.sha256(f"{commit} {scenario.name}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _read_commit() -> str:
    """Return the short hash of the commit, with "-dirty" if the working tree has changes."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
