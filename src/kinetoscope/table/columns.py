"""table: the columns of a trace's events, and what each means. Everything offline speaks of them by these names."""

from typing import Any

from kinetoscope.errors import MissingExtraError
from kinetoscope.formats.chrome_scan import BYTES, NUMBERS, TEXTS

KINDS = ("span", "instant", "counter", "flow", "metadata", "end", "other")
"""What an event is. ``end`` is the end of a span that was written in two halves, whose begin has the duration."""

ARGUMENT_NUMBERS = NUMBERS[3:]
ARGUMENT_TEXTS = TEXTS[4:]

SPAN_COLUMNS = ("ts", "dur", "name", "category", "track", "id", *ARGUMENT_NUMBERS, *ARGUMENT_TEXTS, *BYTES)
"""``ts`` and ``dur`` are nanoseconds, ``ts`` unix ones if the file has a clock; ``track`` is a row of ``.tracks``."""

INSTANT_COLUMNS = ("ts", "name", "category", "track", "id", *ARGUMENT_NUMBERS, *BYTES)

FLOW_COLUMNS = ("ts", "step", "name", "category", "track", "id", "id_text", *BYTES)
"""``step`` is ``s``, ``t`` or ``f``: a flow's start, a step, its finish. ``id_text`` is an id that is no integer."""


def import_polars() -> Any:
    """The library of the frames; `MissingExtraError` says how to install it."""
    try:
        import polars
    except ImportError as error:
        raise MissingExtraError(
            "Traces as tables need polars, which is not installed. Install it: pip install 'kinetoscope[analysis]'"
        ) from error
    return polars
