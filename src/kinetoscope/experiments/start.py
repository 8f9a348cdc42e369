"""One start of the user's command, with or without variants, until its last measured step."""

import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kinetoscope.autoinstrument.process_group import ProcessGroup
from kinetoscope.autoinstrument.settings import DEFAULT_NUM_STEPS, ENVIRONMENT_VARIABLE, AutoSettings, build_environment
from kinetoscope.autoinstrument.trial_files import (
    ERROR_FILE,
    EXITED_EARLY,
    EXITED_FILE,
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
from kinetoscope.experiments.trackers import disable_trackers

NUM_LOG_LINES, LOG_FILE = 20, "log"
_EXCEPTION = re.compile(r"(\[rank\d+\]: )?(?!torch\.distributed\.elastic\.)[A-Za-z_][\w.]*(Error|Exception)(:|$)")
_SIGNAL_NAMES = {int(number): number.name for number in signal.Signals}
_SHELL_SIGNAL_BASE = 128
"""A shell ends with this number plus that of the signal that ended its command."""
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
    """Measurements of one start. ``reason`` says why ``ranks`` is empty, with the last lines of the log.

    ``error`` is the line of the log that names the error, or its last line; "" if the log is empty. ``has_helpers``
    tells whether other processes with torch exited before the last step, without variants.
    """

    ranks: list[RankResult]
    duration_s: float
    reason: str = ""
    log_tail: str = ""
    error: str = ""
    recording: Path | None = None
    has_helpers: bool = False


def run_start(
    command: Command,
    settings: TrialSettings,
    *,
    timeout_s: float,
    is_interrupted: Callable[[], bool],
) -> StartResult:
    """Start the command, wait for the results of its ranks, and end all its processes.

    Raises `InterruptedTrialError` after it has ended them because ``is_interrupted``; OSError if the command cannot be
    started, the working folder copied, or the folder of the start written.
    """
    folder = Path(settings.folder)
    log = folder / LOG_FILE
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    working, environment = command.folder, _build_environment(command, settings)
    if command.copies:
        working = _copy(command.folder, folder / "copy", is_interrupted)
        environment["PWD"] = str(working)
    if is_interrupted():
        raise InterruptedTrialError
    with log.open("wb") as stream:
        process = subprocess.Popen(
            list(command.words),
            cwd=working,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    group = ProcessGroup(ENVIRONMENT_VARIABLE, str(folder), process.pid)
    try:
        reason = _wait(process, folder, started, timeout_s, is_interrupted)
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
    output = _read_tail(log) if reason else ""
    log_tail = "\n".join(output.splitlines()[-NUM_LOG_LINES:])
    is_error_known = (folder / ERROR_FILE).exists() and reason != EXITED_EARLY
    error = reason if is_error_known else _find_error(output)
    has_helpers = (folder / EXITED_FILE).exists()
    return StartResult(ranks, time.monotonic() - started, reason, log_tail, error, recording, has_helpers)


def delete_start(folder: Path, *, keeps_log: bool) -> None:
    """Delete the folder of a start, but its log if that is kept."""
    if not keeps_log:
        _delete_folder(folder)
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            _delete_folder(path)
        elif path.name != LOG_FILE:
            path.unlink(missing_ok=True)


def _delete_folder(folder: Path) -> None:
    """Delete a folder, including read-only ones in it, as in a copy of a git-annex or DVC repository."""
    for parent, _, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(parent, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    size_bytes = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a running program may have deleted it
                size_bytes += Path(parent, name).lstat().st_size
    return size_bytes


_INTERRUPTED = "interrupted"


def _wait(
    process: "subprocess.Popen[bytes]",
    folder: Path,
    started: float,
    timeout_s: float,
    is_interrupted: Callable[[], bool],
) -> str:
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
            return _describe_end(process.returncode, has_trained=(folder / _KEPT).exists())
        if now > started + timeout_s:
            return f"it did not reach its last step within its time limit of {timeout_s:.0f} s"
        time.sleep(_POLL_S)


def _describe_end(code: int, *, has_trained: bool) -> str:
    """Return how the command ended, before the least number of steps that can be measured."""
    steps = format_count(WARMUP_STEPS + MIN_STEPS, "training step")
    before = f"before {steps}" if has_trained else "before the first step of a torch optimizer"
    number = -code if code < 0 else code - _SHELL_SIGNAL_BASE
    if number == signal.SIGKILL:
        return f"it was killed (SIGKILL) {before}, as the system does when memory is exhausted"
    if number in _SIGNAL_NAMES:
        return f"it was ended by {_SIGNAL_NAMES[number]} {before}"
    if code:
        return f"it ended with exit code {code} {before}"
    return f"it ended before the {steps} that a measurement needs" if has_trained else f"it ended {before}"


def _build_environment(command: Command, settings: TrialSettings) -> dict[str, str]:
    auto = AutoSettings(out=str(Path(settings.folder) / _KEPT), trial=settings, diagnose=settings.records)
    if settings.records:
        auto = msgspec.structs.replace(auto, num_steps=DEFAULT_NUM_STEPS, after=WARMUP_STEPS - 1)
    environment = build_environment(auto, disable_trackers(command.environment, settings.folder))
    return environment | {"PYTHONHASHSEED": command.environment.get("PYTHONHASHSEED", "0")}


def _copy(source: Path, target: Path, is_interrupted: Callable[[], bool]) -> Path:
    """Copy the working folder, without the folder of the starts if that is in it."""
    starts = target.parent.parent.resolve()

    def ignore(folder: str, names: list[str]) -> list[str]:
        paths = [Path(folder, name) for name in names]
        return [path.name for path in paths if path.resolve() == starts or _is_special(path)]

    def copy_file(file: str, other: str) -> None:
        if is_interrupted():
            raise InterruptedTrialError
        shutil.copy2(file, other)

    try:
        shutil.copytree(source, target, symlinks=True, ignore=ignore, copy_function=copy_file)
    except shutil.Error as error:
        path, _, reason = error.args[0][0]
        raise OSError(f"cannot copy {path}: {reason}") from error
    return target


def _is_special(path: Path) -> bool:
    """Return whether a file is a socket, a pipe or a device, which cannot be copied."""
    return not (path.is_symlink() or path.is_dir() or path.is_file())


def _read_tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _MAX_LOG_BYTES))
        return stream.read().decode("utf-8", "replace")


def _find_error(output: str) -> str:
    """Return the last line that names an exception; else the last one with a letter, or "".

    Of several ranks it is the first one: the others fail since they lost the connection. Below these lines, torchrun
    prints some 40 of its own.
    """
    lines = [line.strip() for line in output.splitlines() if any(map(str.isalpha, line))]
    exceptions = [match for match in map(_EXCEPTION.match, lines) if match]
    of_ranks = [match.string for match in exceptions if match[1]]
    return of_ranks[0] if of_ranks else ([match.string for match in exceptions] or lines or [""])[-1]
