"""Results of `kinetoscope try`: ``experiments/{time}/result.json`` of a run, or of a folder of its own."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS, RunFolder
from kinetoscope.errors import TraceFileError

SCHEMA = 2
_READABLE_SCHEMAS = (1, SCHEMA)
"""Schema 2 renames only keys that results of `kinetoscope try` do not have (docs/schemas.md)."""

FOLDER, FILE = "experiments", "result.json"
_MAX_BYTES = 1 << 24

KINDS_WITH_VARIANTS = frozenset(
    (
        *("exposed_communication", "exposed_copy", "float32_matmul", "garbage_collection", "host_bound", "input_bound"),
        *("memory_limit", "processor_contention", "python_overhead", "slow_steps", "small_kernels", "straggler"),
        "synchronisation",
    )
)
"""Kinds of findings that a variant of Kinetoscope may fix."""

MIN_CHANGE = 0.03
"""Smaller changes of the step are no significant change; intervals narrower than it need no more rounds of `try`."""

Verdict = Literal["faster", "slower", "same", "unsure", "failed", "not_applied"]
"""``same``: no significant change; ``unsure``: inconclusive; ``not_applied``: the variant changed nothing."""

Results = Literal["equal", "within_tolerance", "different", "not_reproducible"]
"""Comparison of the parameters after the last step with those of the unmodified program."""


class AppliedVariant(msgspec.Struct, frozen=True):
    """A variant and the value that it is applied with."""

    name: str
    value: bool | int | float | str

    @property
    def label(self) -> str:
        """The name with its value, if there is one: ``num_workers=4``."""
        return self.name if self.value == "" else f"{self.name}={self.value}"


class ExperimentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One variant, or a pair of variants, compared with the unmodified program.

    Times are medians over starts of the typical step. ``change`` is relative, with its 95 % ``interval`` for all rows
    together; None where the variant was not measured. ``findings`` are the ids of findings that it may fix.
    """

    variants: list[AppliedVariant]
    verdict: Verdict
    reason: str
    code: str
    kinds: list[str] = []
    findings: list[str] = []
    step_before_ns: float | None = None
    step_after_ns: float | None = None
    change: float | None = None
    interval: tuple[float, float] | None = None
    num_starts: int = 0
    peak_bytes: int | None = None
    peak_before_bytes: int | None = None
    peak_is_of_device: bool = False
    results: Results | None = None
    results_reason: str = ""

    @property
    def label(self) -> str:
        """The variants with their values."""
        return " + ".join(one.label for one in self.variants)


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call of `kinetoscope try`. The command is not part of it."""

    schema: int = SCHEMA
    version: str = ""
    started_unix_s: float = 0.0
    duration_s: float = 0.0
    num_steps: int = 0
    num_rounds: int = 0
    num_starts: int = 0
    num_ranks: int = 1
    step_ns: float | None = None
    noise: float | None = None
    """Relative difference of two starts of the unmodified program, as a standard deviation."""
    rows: list[ExperimentRow] = []
    notes: list[str] = []
    is_complete: bool = True
    """False if it was interrupted, or the time was over before each row had its rounds."""


def write_experiment(folder: RunFolder, name: str, experiment: Experiment) -> None:
    """Write the result into the folder ``name`` of a run. Raises OSError."""
    content = msgspec.json.format(msgspec.json.encode(experiment), indent=2)
    folder.write(f"{name}/{FILE}", content + b"\n")


def read_experiments(run_folder: Path) -> list[Experiment]:
    """Return the results in the folder of a run, the oldest first. One that cannot be read is left out."""
    return sorted(_read_all(run_folder), key=lambda one: one.started_unix_s) if HAS_RUN_FOLDERS else []


def _read_all(run_folder: Path) -> Iterator[Experiment]:
    folder = RunFolder(run_folder)
    names = list[str]()
    with suppress(OSError):
        names = folder.names(FOLDER)
    for name in names:
        with suppress(OSError, TraceFileError):
            yield decode_experiment(folder.read(f"{FOLDER}/{name}/{FILE}", _MAX_BYTES))


def decode_experiment(content: bytes) -> Experiment:
    """Return the result in a file. Raises `TraceFileError` for another one, or another schema."""
    try:
        found = msgspec.json.decode(content, type=Experiment)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFileError(f"This is no result of `kinetoscope try`: {error}.") from None
    if found.schema not in _READABLE_SCHEMAS:
        raise TraceFileError(f"This result has the schema {found.schema}; this version reads up to {SCHEMA}.")
    return found
