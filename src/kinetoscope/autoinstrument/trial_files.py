"""Files that `kinetoscope try` and the training processes of one start exchange: settings, results, marks."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from kinetoscope.formats.experiments import AppliedVariant
from kinetoscope.variants.facts import Facts

WARMUP_STEPS = 10
MIN_STEPS = 20
RELEASED_FILE, NUM_STEPS_FILE, ERROR_FILE, EXITED_FILE = "released", "num_steps", "error", "exited"
"""Files in the folder of a start: rank 0 may end; number of steps that rank 0 chose; why nothing can be measured; an
unmodified process with torch has exited before the last step."""

GUARD_PIPE = "guard"
"""Named pipe in the folder of all starts. While they live, `kinetoscope try` and its guard have it open for writing."""

EXITED_EARLY = "it exited before its last measured step"
"""Text of the error file where there was no exception, or the program has caught it."""

RESULTS_TIMEOUT_S = 10.0
"""Maximum time that a rank waits for the results of the others."""


class TrialSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a command by `kinetoscope try`, for the processes below it.

    Attributes:
        folder: Folder of the start.
        observes: Collect facts about the program, and reduce the number of steps if they take longer than ``max_s``.
        compares_results: Summarise the parameters after the last step.
        records: Record these steps for findings.
        has_helpers: The unmodified command has other processes with torch, which exit before its last step. Then only
            an exit in training, or after a variant has changed something, is a failure of the variant.
    """

    folder: str
    variants: list[AppliedVariant] = []
    files: list[str] = []
    num_steps: Annotated[int, msgspec.Meta(ge=1)] = 60
    max_s: float = 30.0
    seed: int = 0
    observes: bool = False
    compares_results: bool = False
    records: bool = False
    has_helpers: bool = False


class ParameterSummary(msgspec.Struct, frozen=True):
    """Parameters of a rank's leading optimizer: a digest of all bytes, and samples after the first and last step.

    None stands for a value that is not finite.
    """

    digest: str
    first: list[list[float | None]]
    last: list[list[float | None]]


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one rank in one start; ``num_applied`` counts how often each variant changed something."""

    rank: int
    world_size: int
    local_world_size: int
    pid: int
    step_times_ns: list[int]
    peak_bytes: int | None = None
    peak_device_bytes: int | None = None
    num_applied: dict[str, int] = {}
    facts: Facts | None = None
    parameters: ParameterSummary | None = None


def result_path(folder: Path, rank: int) -> Path:
    """Return the path of a rank's result, which is its mark as well."""
    return folder / f"rank{rank}.json"


def write_result(folder: Path, result: RankResult) -> None:
    """Write a rank's result atomically.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(result_path(folder, result.rank), msgspec.json.encode(result))


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that appears under its name when it is complete.

    Raises:
        OSError: The file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)


def read_results(folder: Path) -> list[RankResult]:
    """Return the results that exist, by rank."""
    found = [
        msgspec.json.decode(path.read_bytes(), type=RankResult)
        for path in folder.glob("rank*.json")
        if path.stem.removeprefix("rank").isdecimal()
    ]
    return sorted(found, key=lambda result: result.rank)


def open_guard_pipe(starts: Path) -> int | None:
    """Open the guard pipe for writing, and return its file descriptor: while it is open, no start is abandoned.

    Return None where the file system has no named pipes: there, no start counts as abandoned.
    """
    path = starts / GUARD_PIPE
    try:
        starts.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.mkfifo(path)
        return os.open(path, os.O_RDWR)  # opening it only for writing would wait for a reader
    except OSError:
        return None


def is_abandoned(start: Path) -> bool:
    """Return whether `kinetoscope try` and its guard were killed, so that no process will end those of a start."""
    try:
        pipe = os.open(start.parent / GUARD_PIPE, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:  # empty, and open for writing
        return False
    finally:
        os.close(pipe)
