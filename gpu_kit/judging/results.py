"""The results of a run of the kit: its JSON, and the files in its archives."""

import contextlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_kit.runner import RESULTS, SCHEMA


class UnreadableResultsError(Exception):
    """The folder has no results of a kit of this version."""


@dataclass(frozen=True)
class TaskResult:
    """Output of a task.

    Attributes:
        values: its results; those of a task that did not end may be a part of them.
        folder: its unpacked files.
    """

    part: str
    name: str
    status: str
    reason: str
    values: dict[str, Any]
    folder: Path


@dataclass(frozen=True)
class Results:
    """All results of a run of the kit."""

    content: dict[str, Any]
    tasks: list[TaskResult]
    notes: list[str]

    @property
    def has_gpu(self) -> bool:
        """Return whether the kit found a GPU."""
        return self.content["device"] == "gpu" and bool(self.gpu.get("name"))

    @property
    def environment(self) -> dict[str, Any]:
        """Machine and versions, as far as they were read."""
        return next((task.values for task in self.tasks if task.part == "environment"), {})

    @property
    def gpu(self) -> dict[str, Any]:
        """Name and properties of the GPU; empty without one."""
        return self.environment.get("gpu") or {}

    def select_part(self, name: str) -> list[TaskResult]:
        """Return the tasks of a part that left anything."""
        return [task for task in self.tasks if task.part == name and task.values]


def read_results(out: Path, work: Path) -> Results:
    """Read a run's results, and unpack its archives below ``work``."""
    try:
        content = json.loads((out / RESULTS).read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise UnreadableResultsError(f"{out}: results of schema {content['schema']}; this judge reads {SCHEMA}.")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableResultsError(f"{out}: no results of a GPU kit in it ({error}).") from None
    notes = []
    for archive in sorted(out.glob("*.zip")):
        part = archive.stem.partition("-")[2]
        try:
            with zipfile.ZipFile(archive) as file:
                file.extractall(work / part)
        except (OSError, zipfile.BadZipFile) as error:
            notes.append(f"{archive.name}: {error}")
    return Results(content, list(_tasks(content, work)), notes)


def _tasks(content: dict[str, Any], work: Path) -> Iterator[TaskResult]:
    for part, record in content["parts"].items():
        for name, task in record["tasks"].items():
            values, reason = task.get("result") or {}, task.get("reason", "")
            yield TaskResult(part, name, task["status"], reason, values, work / part / name)


def read_text(path: Path) -> str:
    """Return a file's text; an empty one where there is none."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
