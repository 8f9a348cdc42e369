"""Agreement of the clocks of two ranks and of Kineto, in a real run of the example."""

import gzip
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.suite import Measure, SuiteResult

_EXAMPLE = Path(__file__).parent.parent / "examples" / "train_digits.py"
_MARKER_OF_SPAN = {"model": "forward", "cross_entropy": "loss", "autograd": "backward", "adam": "optimizer"}
Span = tuple[float, float]


def run(*, quick: bool) -> SuiteResult:
    """Train on two gloo ranks and read the merged trace, whose times are microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        events = _run_training(Path(folder), epochs=2 if quick else 6)
    ends = [[end for _, end in _select_spans(events, "barrier", rank)] for rank in (0, 1)]
    apart = [abs(one - other) for one, other in zip(*ends, strict=True)]
    outside = [
        _measure_overhang(events, inner, outer, rank) for rank in (0, 1) for inner, outer in _MARKER_OF_SPAN.items()
    ]
    measures = [
        Measure("ends of a barrier on two ranks, apart", statistics.median(apart), "us", f"worst {max(apart):.0f} us"),
        Measure("record_function outside its marker", max(outside), "us", "the worst of all; 0 if inside"),
    ]
    return SuiteResult(
        suite="two_ranks", title="one clock: two gloo ranks of the example", measures=measures, times_ns={}
    )


def _run_training(folder: Path, epochs: int) -> list[dict[str, Any]]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, str(_EXAMPLE), "--out", str(folder / "run"), "--epochs", str(epochs)]
    subprocess.run(command, check=True, capture_output=True)
    trace = json.loads(gzip.decompress((folder / "run" / "traces" / "merged_trace.json.gz").read_bytes()))
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def _select_spans(events: list[dict[str, Any]], name: str, rank: int) -> list[Span]:
    found = [event for event in events if event["name"] == name and event["pid"] == rank]
    return sorted((span["ts"], span["ts"] + span["dur"]) for span in found)


def _measure_overhang(events: list[dict[str, Any]], inner: str, outer: str, rank: int) -> float:
    """Return the most that a span named ``inner`` extends beyond the marker ``outer`` around it."""
    outers = _select_spans(events, outer, rank)
    return max(
        min(max(begin - inner_begin, inner_end - end, 0.0) for begin, end in outers)
        for inner_begin, inner_end in _select_spans(events, inner, rank)
    )
