"""Arguments and results that all tasks share."""

import argparse
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_kit.runner import read_json, write_json


class TaskRun:
    """One run of a task: its folder, its arguments, and the time it has.

    Attributes:
        device: "cuda", or "cpu" with ``--cpu``.
    """

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("folder", type=Path)
        parser.add_argument("names", nargs="*")
        parser.add_argument("--seconds", type=float, default=60.0)
        parser.add_argument("--cpu", action="store_true")
        options = parser.parse_args()
        self.folder: Path = options.folder
        self.names: list[str] = options.names
        self.cpu: bool = options.cpu
        self.device = "cpu" if options.cpu else "cuda"
        self._until = time.monotonic() + options.seconds

    def seconds_left(self) -> float:
        """Return the seconds that the task still has."""
        return self._until - time.monotonic()

    def add(self, **values: Any) -> None:
        """Add values to the task's results, which are written at once."""
        path = self.folder / "result.json"
        write_json(path, read_json(path) | values)

    def probe(self, name: str, read: Callable[[], Any]) -> None:
        """Add one value, or the error that reading it raised, which ends nothing else."""
        try:
            value = read()
        except Exception as error:
            traceback.print_exc()
            value = {"error": f"{type(error).__name__}: {error}"}
        self.add(**{name: value})

    def skip(self, reason: str) -> None:
        """Mark the whole task as skipped."""
        self.add(skipped_task=reason)
