"""The judge of the kit's results: ``python -m gpu_kit.judge OUT``.

Results of a GPU become the marked parts of docs/gpu.md and docs/costs.md, and benchmarks/results/gpu.json; others
OUT/gpu.md and OUT/gpu.json.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_kit.judging.page import render_overhead, render_verdicts
from gpu_kit.judging.results import UnreadableResultsError, read_results
from gpu_kit.judging.verdicts import judge

ROOT = Path(__file__).resolve().parents[1]
PART_BEGIN, PART_END = "<!-- GPU: written by gpu_kit.judge -->\n", "<!-- end of GPU -->\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge results and write the page; return 1 if a part of the kit failed or a trace has errors, else 0."""
    parser = argparse.ArgumentParser(prog="python -m gpu_kit.judge", description="Judge the results of the GPU kit.")
    parser.add_argument("out", type=Path, metavar="OUT")
    options = parser.parse_args(arguments)
    try:
        return judge_folder(options.out, ROOT)
    except UnreadableResultsError as error:
        print(error, file=sys.stderr)
        return 2


def judge_folder(out: Path, root: Path) -> int:
    """Judge the results in ``out``, and write them into the repository at ``root`` if they are of a GPU."""
    with tempfile.TemporaryDirectory(prefix="gpu-kit-judge-") as work:
        results = read_results(out, Path(work))
        verdict = judge(results)
    page, numbers = out / "gpu.md", out / "gpu.json"
    if results.has_gpu:
        page, numbers = root / "docs" / "gpu.md", root / "benchmarks" / "results" / "gpu.json"
        _write_part(page, render_verdicts(verdict))
        _write_part(root / "docs" / "costs.md", _describe_costs(verdict))
    else:
        page.write_text(f"# On a GPU\n\n{render_verdicts(verdict)}", encoding="utf-8")
    numbers.write_text(json.dumps(verdict, indent=1) + "\n", encoding="utf-8")
    _print(verdict, page)
    return int(bool(verdict["failed"]) or any(trace["errors"] for trace in verdict["traces"]))


def _write_part(path: Path, text: str) -> None:
    """Replace the marked part of a page."""
    head, _, rest = path.read_text(encoding="utf-8").partition(PART_BEGIN)
    path.write_text(head + PART_BEGIN + text + PART_END + rest.partition(PART_END)[2], encoding="utf-8")


def _describe_costs(verdict: dict[str, Any]) -> str:
    gpu = verdict["environment"]["gpu"]["name"]
    return f"Measured on {verdict['date']} on {gpu}; [all results](gpu.md).\n\n{render_overhead(verdict)}"


def _print(verdict: dict[str, Any], page: Path) -> None:
    named = [row.get("is_named", False) for row in verdict["faults"]]
    quiet = [not row.get("false_alarms", True) for row in verdict["healthy"]]
    errors = sum(bool(trace["errors"]) for trace in verdict["traces"])
    print(f"{sum(named)} of {len(named)} faults are named by the top finding.")
    print(f"{sum(quiet)} of {len(quiet)} healthy programs have no finding of high confidence.")
    print(f"{len(verdict['traces'])} traces in Perfetto's trace processor, {errors} with errors.")
    for name in ("skipped", "failed"):
        for line in verdict[name]:
            print(f"{name}: {' '.join(line.split())}")
    print(f"The page: {page}")


if __name__ == "__main__":
    sys.exit(main())
