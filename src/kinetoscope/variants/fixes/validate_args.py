"""Variant: distributions of torch without validation of their arguments."""

import sys

from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Applied, Value, variant


def find_values(facts: Facts) -> list[bool]:
    """Return False where distributions are validated."""
    return [False] if facts.num_distributions else []


@variant(
    "validate_args",
    find_values=find_values,
    valid_values=(False, True),
    code="torch.distributions.Distribution.set_default_validate_args({value})",
    kinds=("python_overhead", "synchronisation", "small_kernels", "host_bound"),
)
def apply(value: Value, applied: Applied) -> None:
    """Change the default, and what distributions request themselves."""
    sys.modules["torch.distributions"].Distribution._validate_args = _SetForAll(bool(value), applied)


class _SetForAll:
    """Attribute of distributions that keeps its value. Wrapping their constructor would cost half of what it saves."""

    def __init__(self, value: bool, applied: Applied) -> None:
        self._value, self._applied = value, applied
        self._is_applied = False

    def __get__(self, distribution: object, kind: type) -> bool:
        if not self._is_applied:
            self._is_applied = True
            self._applied()
        return self._value

    def __set__(self, distribution: object, value: bool) -> None:
        """Keep the value of the variant."""
