"""Settings of a run, and checks of arguments."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import GeneratorType
from typing import Any

from kinetoscope.core.job.event import Callback
from kinetoscope.core.paths.atomic_file import working_folder
from kinetoscope.core.paths.remote_url import check_url
from kinetoscope.errors import SettingsError
from kinetoscope.recording.markers.schedule import Schedule, check_schedule
from kinetoscope.recording.window.guard import owner_name
from kinetoscope.recording.window.trace_handler import TraceHandler
from kinetoscope.spool.spool_folder import DEFAULT_MAX_SPOOL_BYTES

_METHODS = {name for kind in (TraceHandler, Callback) for name in dir(kind) if not name.startswith("_")}


def check_callbacks(value: Any, argument: str) -> list[Any]:
    """Return one or several trace handlers or sources as a list. Each must have some of their methods.

    Raises:
        SettingsError: for another object, or one that is passed twice. The error names the ``argument``.
    """
    several = isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)
    callbacks = list(value) if several else [value]
    for index, callback in enumerate(callbacks):
        _check_callback(callback, argument)
        if any(other is callback for other in callbacks[:index]):
            raise SettingsError(f"{argument} contains the same {owner_name(callback)} twice. Pass it once.")
    return callbacks


def _check_callback(callback: object, argument: str) -> None:
    if isinstance(callback, type):
        raise SettingsError(
            f"{argument} contains the class {callback.__name__}. Pass an instance: {callback.__name__}()."
        )
    if isinstance(callback, GeneratorType):
        raise SettingsError(f"{argument} is a generator. Pass a list.")
    if isinstance(callback, str | bytes | PurePath | Mapping):
        raise SettingsError(
            f"{argument} contains {callback!r}. Pass objects such as JSONTraceHandler(...), or a list of them."
        )
    if not any(callable(getattr(callback, name, None)) for name in _METHODS):
        raise SettingsError(f"{argument} contains {callback!r}, which has no method of Callback or TraceHandler.")


def check_number(value: object, argument: str, unit: str, *, min_value: float = 0, max_value: float = math.inf) -> None:
    """Raise `SettingsError` unless ``value`` is a number from ``min_value`` to ``max_value``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not min_value <= value <= max_value:
        bounds = f"at least {min_value:,}" if max_value == math.inf else f"from {min_value:,} to {max_value:,}"
        raise SettingsError(f"{argument} is a number of {unit}, {bounds}; not {value!r}.")


def check_type(value: object, argument: str, types: Iterable[type], description: str) -> None:
    """Raise `SettingsError` unless a value is an instance of one of the ``types``.

    The message contains ``argument``, the name of the setting, and ``description``, such as ``True or False``.
    """
    if not isinstance(value, tuple(types)):
        raise SettingsError(f"{argument} must be {description}, not {value!r}.")


def check_flag(value: object, argument: str) -> None:
    """Raise `SettingsError` unless ``value`` is True or False."""
    check_type(value, argument, (bool,), "True or False")


def check_state(state: object) -> None:
    """Raise `SettingsError` unless ``state`` has the attributes of `State` that are read."""
    missing = [name for name in ("run_name", "timestamp") if not hasattr(state, name)]
    if missing:
        raise SettingsError(f"state must have the attributes of State; {state!r} has no {' and no '.join(missing)}.")


SAVE_TIMEOUT_S = 300.0
"""Seconds that a normal close waits until all records are on disk, if ``close_timeout_s`` is not longer."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of a run, as `kinetoscope.Profiler` describes them.

    A relative ``spool_folder`` is resolved against the working folder at construction. Raises `SettingsError` for a
    setting that cannot work.
    """

    schedule: Schedule
    upload_to: str | None = None
    strict: bool = False
    grace_s: float = 10.0
    close_timeout_s: float = 10.0
    spool_folder: str | os.PathLike[str] | bool | None = None
    live_bytes_max: int = DEFAULT_MAX_SPOOL_BYTES
    is_quiet: bool = False
    redact: Callable[[str], str] | None = None
    hangs: bool = False
    slow_steps: bool = False

    def __post_init__(self) -> None:
        check_schedule(self.schedule)
        if self.upload_to is not None:
            check_type(self.upload_to, "upload_to", (str,), "a URL")
            check_url(self.upload_to, "upload_to")
        if self.spool_folder is not None:
            check_type(self.spool_folder, "spool_folder", (str, os.PathLike, bool), "a folder, or False for none")
        check_flag(self.strict, "strict")
        check_flag(self.is_quiet, "quiet")
        check_flag(self.hangs, "hangs")
        check_flag(self.slow_steps, "slow_steps")
        check_number(self.grace_s, "grace_s", "seconds")
        check_number(self.close_timeout_s, "close_timeout_s", "seconds")
        check_number(self.live_bytes_max, "live_bytes_max", "bytes")
        if self.redact is not None and not callable(self.redact):
            raise SettingsError(f"redact must be a function from a string to its replacement, not {self.redact!r}.")
        if self.spool_folder and isinstance(self.spool_folder, str | os.PathLike):
            object.__setattr__(self, "spool_folder", working_folder() / self.spool_folder)
