"""torch: warnings that a process gives once. A message flows in; the first time, a warning flows out."""

import warnings

# A global, because torch.profiler has it as ``_WARNINGS_SHOWN``, and its users clear it to be warned again.
WARNINGS_SHOWN: set[str] = set()


def warn_once(message: str) -> None:
    """Warns, unless this process has been told the same before."""
    if message not in WARNINGS_SHOWN:
        WARNINGS_SHOWN.add(message)
        warnings.warn(message, stacklevel=4)
