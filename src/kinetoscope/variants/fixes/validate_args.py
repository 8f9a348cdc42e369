"""Variant: distributions of torch without validation of their arguments."""

import sys
from typing import Any

from kinetoscope.variants.arguments import change_arguments
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return False where distributions are validated."""
    return [False] if facts.num_distributions else []


@variant(
    "validate_args",
    find_values=find_values,
    code="torch.distributions.Distribution.set_default_validate_args(False)",
    kinds=("python_overhead", "synchronisation", "small_kernels", "host_bound"),
)
def apply(value: Value, applied: Applied) -> None:
    """Change the default, and the argument of distributions that request validation."""
    kind: Any = sys.modules["torch.distributions"].Distribution
    kind.set_default_validate_args(bool(value))
    change_arguments(kind, "__init__", lambda _: {"validate_args": value}, applied)
