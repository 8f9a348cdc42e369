"""Which twins a test runs that can run both: both in `make test`, else the one that the run is about."""

import os

from kinetoscope.native import is_pure_wanted


def _twins() -> tuple[str, ...]:
    if is_pure_wanted():  # `make test-pure`
        return ("pure",)
    if "libasan" in os.environ.get("LD_PRELOAD", ""):  # `make test-sanitized`
        return ("native",)
    return ("native", "pure")


TWINS = _twins()
