"""Evidence on both sides of each threshold: a rule, or the function that it calls, must differ between the two.

The values are written out here, as a reader of the docs expects them; no case reads the constant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Detect = Callable[[Any], bool]

CASES: "dict[str, Case]" = {}
"""The cases by the name of the constant, as on the page of thresholds."""


@dataclass(frozen=True)
class Case:
    """Evidence drawn from a value: ``detect`` is False ``below`` the threshold and True ``above`` it."""

    detect: Detect
    below: Any
    above: Any

    def holds(self) -> bool:
        """Return whether the two differ as they should."""
        return not self.detect(self.below) and self.detect(self.above)


def threshold(
    name: str, value: float | None = None, *, between: tuple[Any, Any] | None = None
) -> Callable[[Detect], Detect]:
    """Register a case: 10 % below and above a ``value``, or ``between`` two others."""
    below, above = between or (0.9 * (value or 0), 1.1 * (value or 0))

    def register(detect: Detect) -> Detect:
        assert name not in CASES
        CASES[name] = Case(detect, below, above)
        return detect

    return register
