"""Variant: other sizes of the buckets in which DistributedDataParallel reduces gradients."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import DEFAULT_BUCKET_CAP_MB, Facts
from kinetoscope.variants.registry import Applied, Value, variant

_LARGE_MB = 100


def find_values(facts: Facts) -> list[int]:
    """Return torch's own size and a larger one, without the program's own size."""
    current = {ddp.bucket_cap_mb for ddp in facts.ddp}
    return [size for size in (DEFAULT_BUCKET_CAP_MB, _LARGE_MB) if current and current != {size}]


@variant(
    "bucket_cap_mb",
    find_values=find_values,
    valid_values=range(1, 10_001),
    code="DistributedDataParallel(..., bucket_cap_mb={value})",
    kinds=("exposed_communication",),
    keeps_results=False,
)
def apply(value: Value, applied: Applied) -> None:
    """Change the models that are wrapped."""
    parallel: Any = sys.modules["torch.nn.parallel"]
    change_arguments(parallel.DistributedDataParallel, "__init__", lambda _: {"bucket_cap_mb": value}, applied)
