"""Short recordings inside a task's own process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kinetoscope


def record(folder: Path, step: Callable[[], object], num_steps: int = 8, **options: Any) -> None:
    """Record some steps into a folder, after one that is skipped and one that warms up; keep one copy of the traces."""
    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=num_steps, per="run")
    with kinetoscope.profile(folder, schedule=schedule, quiet=True, **options) as profiler:
        for _ in range(num_steps + 3):
            step()
            profiler.step()
    drop_copies(folder)


def drop_copies(run: Path) -> None:
    """Remove the merged trace, which repeats the ranks' own."""
    for path in (run / "traces").glob("merged_trace*"):
        path.unlink()
