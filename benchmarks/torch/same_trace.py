"""Numbers of operators, allocations and FLOPs in two traces of the same steps."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.suite import Measure

_OPERATOR, _ALLOCATION = "cpu_op", "cpu_instant_event"


def compare_contents(recorded: Path, stock: Path) -> Iterable[Measure]:
    """Yield the ratio of each number to that in the trace of torch.profiler. With equal contents all are 1."""
    numbers, torchs_numbers = map(_read_numbers, (recorded, stock))
    for name, number in torchs_numbers.items():
        detail = f"{numbers[name]:,} / {number:,}"
        yield Measure(f"{name} in the trace / torch.profiler's", numbers[name] / number, "x", detail)


def _read_numbers(path: Path) -> dict[str, int]:
    import kinetoscope
    from kinetoscope.formats.compression import read_unpacked

    events: list[dict[str, Any]] = json.loads(read_unpacked(path)[0])["traceEvents"]
    flops_per_step = kinetoscope.analyze(path, cache=False).run["flops_per_step"]
    return {
        "operators": sum(event.get("cat") == _OPERATOR for event in events),
        "allocations": sum(event.get("cat") == _ALLOCATION for event in events),
        "FLOPs a step": round(flops_per_step or 0),
    }
