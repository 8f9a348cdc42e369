"""recording: checks what a Profiler is given. A wrong argument fails at construction, and the error names it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import GeneratorType
from typing import Any

from kinetoscope.errors import SettingsError
from kinetoscope.live.own_folder import LIVE_BYTES_MAX
from kinetoscope.recording.contract import TraceHandler
from kinetoscope.recording.schedule import Schedule, cyclic_schedule
from kinetoscope.training.event import Callback
from kinetoscope.training.remote_url import check_url
from kinetoscope.writing.atomic_file import working_folder

_METHODS = {name for kind in (TraceHandler, Callback) for name in dir(kind) if not name.startswith("_")}


def check_schedule(schedule: object) -> None:
    """A function from State to ProfilerAction."""
    if schedule is cyclic_schedule:
        raise SettingsError("schedule must be what cyclic_schedule gives: call it, as in cyclic_schedule(active=4).")
    if not callable(schedule) or isinstance(schedule, type):
        raise SettingsError(f"schedule must be a function from State to ProfilerAction, not {schedule!r}.")


def check_callbacks(given: Any, argument: str) -> list[Any]:
    """One trace handler or source, or several, as a list. They may be of any class that has some of the methods."""
    several = isinstance(given, Sequence | set | frozenset) and not isinstance(given, str | bytes)
    callbacks = list(given) if several else [given]
    for callback in callbacks:
        _check_callback(callback, argument)
    return callbacks


def _check_callback(callback: object, argument: str) -> None:
    if isinstance(callback, type):
        raise SettingsError(f"{argument} holds the class {callback.__name__}. Pass an instance: {callback.__name__}().")
    if isinstance(callback, GeneratorType):
        raise SettingsError(f"{argument} is a generator. Pass a list.")
    if isinstance(callback, str | bytes | PurePath | Mapping):
        raise SettingsError(
            f"{argument} holds {callback!r}. Pass objects such as JSONTraceHandler(...), or a list of them."
        )
    if not any(callable(getattr(callback, name, None)) for name in _METHODS):
        raise SettingsError(f"{argument} holds {callback!r}, which has no method of Callback or TraceHandler.")


def check_number(value: object, argument: str, unit: str, *, least: float = 0) -> None:
    """A number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise SettingsError(f"{argument} is a number of {unit}, at least {least}; not {value!r}.")


def check_kind(value: object, argument: str, kinds: Iterable[type], words: str) -> None:
    """One of some types."""
    if not isinstance(value, tuple(kinds)):
        raise SettingsError(f"{argument} must be {words}, not {value!r}.")


def check_state(state: object) -> None:
    """Something with the attributes of a `State` that are read."""
    missing = [name for name in ("run_name", "timestamp") if not hasattr(state, name)]
    if missing:
        raise SettingsError(f"state must have the attributes of State; {state!r} has no {' and no '.join(missing)}.")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How to record a run, as `kinetoscope.Profiler` describes it. Raises `SettingsError` for what cannot work.

    A relative ``live_folder`` is one in the folder where the process is when this is made.
    """

    schedule: Schedule
    upload_to: str | None = None
    strict: bool = False
    grace_s: float = 10.0
    close_timeout_s: float = 300.0
    live_folder: str | os.PathLike[str] | bool | None = None
    live_bytes_max: int = LIVE_BYTES_MAX
    is_quiet: bool = False

    def __post_init__(self) -> None:
        check_schedule(self.schedule)
        if self.upload_to is not None:
            check_kind(self.upload_to, "upload_to", (str,), "a URL")
            check_url(self.upload_to, "upload_to")
        if self.live_folder is not None:
            check_kind(self.live_folder, "live_folder", (str, os.PathLike, bool), "a folder, or False for none")
        check_number(self.grace_s, "grace_s", "seconds")
        check_number(self.close_timeout_s, "close_timeout_s", "seconds")
        check_number(self.live_bytes_max, "live_bytes_max", "bytes")
        if self.live_folder and isinstance(self.live_folder, str | os.PathLike):
            object.__setattr__(self, "live_folder", working_folder() / self.live_folder)
