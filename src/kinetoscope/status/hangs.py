"""What a rank says about where it hangs."""

from dataclasses import dataclass
from pathlib import Path

from kinetoscope.pulse.header import PulseHeader


@dataclass(frozen=True, kw_only=True)
class Hang:
    """Where a rank hangs: the ``place`` of its training thread, "" if it is not known."""

    place: str = ""


def hang_of(run_folder: Path, header: PulseHeader) -> Hang | None:
    """The hang that a rank tells of; None if it tells of none."""
    del run_folder, header
    return None
