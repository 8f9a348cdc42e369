"""One start of the user's command, with or without variants, until its last measured step."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kinetoscope.autoinstrument.settings import DEFAULT_NUM_STEPS, ENVIRONMENT_VARIABLE, AutoSettings, build_environment
from kinetoscope.autoinstrument.trial_files import (
    ERROR_FILE,
    MIN_STEPS,
    RELEASED_FILE,
    RESULTS_TIMEOUT_S,
    WARMUP_STEPS,
    RankResult,
    TrialSettings,
    read_results,
)
from kinetoscope.core.text.wording import format_count
from kinetoscope.errors import KinetoscopeError
from kinetoscope.experiments.processes import ProcessGroup
from kinetoscope.experiments.trackers import disable_trackers

NUM_LOG_LINES = 20
_POLL_S = 0.02
_REAP_TIMEOUT_S = 5.0
_MARK_SLACK_S = 2.0
_MAX_LOG_BYTES = 64 << 10
_KEPT = "recording"
"""The folder of a recording in the folder of its start."""


class InterruptedTrialError(KinetoscopeError):
    """The user has ended `kinetoscope try`, and its processes have ended."""


@dataclass(frozen=True)
class Command:
    """The user's command: its words, the folder that it runs in, and whether each start gets a copy of that."""

    words: Sequence[str]
    folder: Path
    copies: bool = False
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(frozen=True)
class StartResult:
    """Measurements of one start. ``reason`` says why ``ranks`` is empty, with the last lines of the log."""

    ranks: list[RankResult]
    duration_s: float
    reason: str = ""
    log_tail: str = ""
    recording: Path | None = None


def run_start(
    command: Command,
    settings: TrialSettings,
    *,
    timeout_s: float,
    is_interrupted: Callable[[], bool],
) -> StartResult:
    """Start the command, wait for the results of its ranks, and end all its processes.

    Raises `InterruptedTrialError` after it has ended them because ``is_interrupted``; OSError if the command cannot be
    started or the folder of the start cannot be written.
    """
    folder = Path(settings.folder)
    folder.mkdir(parents=True, exist_ok=True)
    working = _copy(command.folder, folder / "copy") if command.copies else command.folder
    log = folder / "log"
    started = time.monotonic()
    with log.open("wb") as stream:
        process = subprocess.Popen(
            list(command.words),
            cwd=working,
            env=_build_environment(command, settings),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    group = ProcessGroup(process.pid, ENVIRONMENT_VARIABLE, str(folder))
    try:
        reason = _wait(process, folder, started + timeout_s, is_interrupted)
        ranks = [] if reason else read_results(folder)
        spare = next((result.pid for result in ranks if result.rank == 0), None)
        group.end(spare, (folder / RELEASED_FILE).touch)
    except BaseException:
        group.kill()
        raise
    finally:
        with suppress(subprocess.TimeoutExpired):  # a process in a stalled mount cannot be killed
            process.wait(_REAP_TIMEOUT_S)
    if reason == _INTERRUPTED:
        raise InterruptedTrialError
    recording = folder / _KEPT if settings.records and ranks else None
    return StartResult(ranks, time.monotonic() - started, reason, _tail(log) if reason else "", recording)


def delete_start(folder: Path, *, keeps_log: bool) -> None:
    """Delete what a start has left in its folder, but its log if that is kept."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif not (keeps_log and path.name == "log"):
            path.unlink(missing_ok=True)
    if not keeps_log:
        with suppress(OSError):
            folder.rmdir()


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() or path.is_symlink())


_INTERRUPTED = "interrupted"


def _wait(process: "subprocess.Popen[bytes]", folder: Path, end: float, is_interrupted: Callable[[], bool]) -> str:
    """Return "" when all ranks have written their results; else the reason why they have not."""
    first_mark: float | None = None
    while True:
        has_ended = process.poll() is not None  # polled before reading: it may write the files, then end
        ranks = read_results(folder)
        if is_interrupted():
            return _INTERRUPTED
        if any(result.world_size > result.local_world_size for result in ranks):
            return "this command has ranks on other machines, which `kinetoscope try` does not start"
        if ranks and len(ranks) >= ranks[0].local_world_size:
            return ""
        now = time.monotonic()
        if ranks and first_mark is None:
            first_mark = now
        if first_mark is not None and now > first_mark + RESULTS_TIMEOUT_S + _MARK_SLACK_S:
            return f"{len(ranks)} of {ranks[0].local_world_size} ranks reached the last step"
        if (folder / ERROR_FILE).exists():
            return f"{(folder / ERROR_FILE).read_text(encoding='utf-8', errors='replace')}"
        if has_ended:
            return _describe_end(process.returncode)
        if now > end:
            return "it did not reach its last step within the time limit"
        time.sleep(_POLL_S)


def _describe_end(code: int) -> str:
    if code:
        by = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the command ended with {by} before {format_count(WARMUP_STEPS + MIN_STEPS, 'step')}"
    return f"the command ended before {format_count(WARMUP_STEPS + MIN_STEPS, 'training step')}"


def _build_environment(command: Command, settings: TrialSettings) -> dict[str, str]:
    auto = AutoSettings(out=str(Path(settings.folder) / _KEPT), trial=settings, diagnose=settings.records)
    if settings.records:
        auto = msgspec.structs.replace(auto, num_steps=DEFAULT_NUM_STEPS, after=WARMUP_STEPS - 1)
    environment = build_environment(auto, disable_trackers(command.environment, settings.folder))
    return environment | {"PYTHONHASHSEED": command.environment.get("PYTHONHASHSEED", "0")}


def _copy(source: Path, target: Path) -> Path:
    """Copy the working folder, without the folder of the starts if that is in it."""
    starts = target.parent.parent.resolve()

    def ignore(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder, name).resolve() == starts]

    shutil.copytree(source, target, symlinks=True, ignore=ignore)
    return target


def _tail(log: Path) -> str:
    """Return the last lines of a log."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _MAX_LOG_BYTES))
        text = stream.read().decode("utf-8", "replace")
    return "\n".join(text.splitlines()[-NUM_LOG_LINES:])
