"""Files by which `kinetoscope try` and the training processes of one start communicate: settings, results, marks."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from kinetoscope.formats.experiments import AppliedVariant
from kinetoscope.variants.facts import Facts

WARMUP_STEPS = 10
MIN_STEPS = 20
RELEASED_FILE, NUM_STEPS_FILE, ERROR_FILE = "released", "num_steps", "error"
"""Files in the folder of a start: rank 0 may end; the number of steps that rank 0 chose; why there is no result."""

RESULTS_TIMEOUT_S = 10.0
"""Time that a rank waits for the results of the others."""

RELEASE_TIMEOUT_S = 20.0
"""Time that rank 0 waits to be released, while the rest of the command is ended: a shell script would run its next
line as soon as rank 0 ends."""


class TrialSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a command by `kinetoscope try`, for the processes below it.

    ``folder`` is that of the start. With ``observes``, facts about the program are collected, and the number of steps
    is lowered if they take longer than ``max_s``. With ``compares_results``, the parameters after the last step are
    summarized. With ``records``, findings get a recording of these steps.
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


class ParameterSummary(msgspec.Struct, frozen=True):
    """The parameters of a rank's leading optimizer: a digest of all bytes, and some values after the first and the
    last step; None is a value that is not finite."""

    digest: str
    first: list[list[float | None]]
    last: list[list[float | None]]


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one rank in one start. ``num_applied`` has how often each variant changed something."""

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
    """Write a rank's result completely or not at all. Raises OSError."""
    write_atomically(result_path(folder, result.rank), msgspec.json.encode(result))


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that appears under its name when it is complete. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)


def read_results(folder: Path) -> list[RankResult]:
    """Return the results that are there, by rank."""
    found = [
        msgspec.json.decode(path.read_bytes(), type=RankResult)
        for path in folder.glob("rank*.json")
        if path.stem.removeprefix("rank").isdecimal()
    ]
    return sorted(found, key=lambda result: result.rank)
