"""Titles of findings: the diagnosis, a quantity per step and the culprit, in at most 80 characters."""

from collections.abc import Callable

MAX_TITLE = 80

Title = Callable[[float], str]
"""Build the title of a finding from its cost in nanoseconds per step."""


def add_detail(title: str, detail: str, num_more: int = 0) -> str:
    """Append a detail, such as the culprit, unless the title would be too long.

    Args:
        title: the title.
        detail: the detail, with the space before it.
        num_more: number of characters that follow.
    """
    return title + detail if len(title) + len(detail) + num_more <= MAX_TITLE else title


def format_rate(per_step: float) -> str:
    """Return a number per step: two digits below 10, else whole."""
    return f"{per_step:.2g}" if per_step < 9.95 else f"{per_step:,.0f}"
