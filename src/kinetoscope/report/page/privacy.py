"""Removal of private data from a page, since it is made to be sent: paths, and names of users."""

import getpass
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from kinetoscope.core.paths.short_paths import project_folder, shorten_paths

_Value = TypeVar("_Value")

_HOME = re.compile(r"[/\\](?:home|[Uu]sers)[/\\]([^/\\\s:;,\"'()<>|]+)")
_GENERIC_NAMES = frozenset(
    [
        "admin",
        "all",
        "data",
        "default",
        "ec2-user",
        "guest",
        "home",
        "jovyan",
        "model",
        "node",
        "public",
        "python",
        "root",
        "runner",
        "shared",
        "test",
        "torch",
        "train",
        "ubuntu",
        "user",
        "users",
        "work",
    ]
)
_MIN_NAME_LENGTH = 3
_DETAILS_KEY, _EVIDENCE_KEY = "details", "evidence"
_NON_TEXT_TYPES = (int, float, NoneType)  # most values of a page
USER_REPLACEMENT = "user"
"""Replacement string for the name of a user."""


def remove_personal_names(page: _Value) -> _Value:
    """Return a page, or a part of one, with paths relative to a library or the project, and without user names."""
    strings = collect_strings(page)
    project = project_folder(strings)
    users = _compile_user_pattern(strings)

    def shortened(text: str) -> str:
        text = shorten_paths(text, project)
        return users.sub(USER_REPLACEMENT, text) if users is not None else text

    return map_strings(page, shortened)


def collect_strings(value: Any) -> set[str]:
    """Return all strings of a page, or of a part of one."""
    strings: set[str] = set()
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            strings.add(part)
        elif isinstance(part, _NON_TEXT_TYPES):
            continue
        elif isinstance(part, dict):
            strings.update(map(str, part))
            parts.extend(part.values())
        elif isinstance(part, (list, tuple)):
            parts.extend(part)
        elif is_dataclass(part):
            parts.extend(getattr(part, field.name) for field in fields(part))
    return strings


def map_strings(value: _Value, change: Callable[[str], str]) -> _Value:
    """Return a page, or a part of one, with all strings changed except Kinetoscope's own keys."""
    return _map_value(value, change, in_details=False)


def _map_value(value: Any, change: Callable[[str], str], *, in_details: bool) -> Any:
    """Return a changed value; ``in_details`` are arguments of spans, whose keys come from a trace."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, _NON_TEXT_TYPES):
        return value
    if isinstance(value, dict):
        items = ((key, _map_field(str(key), part, change, in_details)) for key, part in value.items())
        return {change(str(key)) if in_details else key: part for key, part in items}
    if isinstance(value, (list, tuple)):
        return [_map_value(part, change, in_details=in_details) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{name: _map_field(name, part, change, False) for name, part in parts.items()})
    return value


def _map_field(name: str, part: Any, change: Callable[[str], str], in_details: bool) -> Any:
    """Return a changed field; the keys of evidence are Kinetoscope's own."""
    if name == _EVIDENCE_KEY and not in_details:
        return part
    return _map_value(part, change, in_details=in_details or name == _DETAILS_KEY)


def _compile_user_pattern(strings: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern of the user names in paths of home folders and of the current user, as whole words."""
    found = {match[1] for text in strings for match in _HOME.finditer(text)} | set(_find_user_names())
    names = sorted(name for name in found if len(name) >= _MIN_NAME_LENGTH and name.lower() not in _GENERIC_NAMES)
    if not names:
        return None
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, names))})(?![^\W_])")


def _find_user_names() -> Iterator[str]:
    """Yield the names of the current user."""
    with suppress(OSError, KeyError, ImportError):  # without a name, or on Windows without `pwd`
        yield getpass.getuser()
    with suppress(RuntimeError):
        yield Path.home().name
