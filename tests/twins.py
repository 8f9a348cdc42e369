"""Which twins a test runs that can run both: both in `make test`, else the one that the run is about."""

import os


def _twins() -> tuple[str, ...]:
    if os.environ.get("KINETOSCOPE_PURE", "0") not in ("", "0"):  # `make test-pure`
        return ("pure",)
    if "libasan" in os.environ.get("LD_PRELOAD", ""):  # `make test-sanitized`
        return ("native",)
    return ("native", "pure")


TWINS = _twins()
