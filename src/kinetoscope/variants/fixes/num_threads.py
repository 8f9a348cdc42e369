"""Variant: other numbers of threads for torch's operators on the CPU."""

import sys
from collections.abc import Callable
from typing import Any

from kinetoscope.hooks.patching import ReplacedMethod
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[int]:
    """Return one thread, half of the rank's cores, and all of them, without the program's own number."""
    return sorted({1, max(1, facts.num_cores // 2), facts.num_cores} - {facts.num_threads})


@variant(
    "num_threads",
    find_values=find_values,
    valid_values=range(1, 1025),
    code="torch.set_num_threads({value})",
    kinds=("processor_contention", "small_kernels"),
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Set the number, and ignore the program's own calls. DataLoader workers still set theirs to 1."""
    torch: Any = sys.modules["torch"]

    def set_num_threads(original: Callable[[int], None], number: int) -> None:
        caller = str(sys._getframe(2).f_globals.get("__name__"))
        original(number if caller.partition(".")[0] == "torch" else int(value))

    torch.set_num_threads(int(value))
    applied()
    ReplacedMethod(torch, "set_num_threads", set_num_threads)
