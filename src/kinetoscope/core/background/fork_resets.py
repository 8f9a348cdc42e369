"""Resets of this process's state in forked children: one registry for functions and for objects that come and go."""

import logging
import os
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, TypeVar

_log = logging.getLogger("kinetoscope")
_Reset = TypeVar("_Reset", bound=Callable[[], Any])

_resets: dict[tuple[Callable[[], object] | None, Callable[..., Any]], None] = {}
"""Weak references to objects (None for functions) with what to call, in the order of their registration."""


def reset_after_fork(reset: _Reset) -> _Reset:
    """Call a function or a bound method first in every process that is forked from now on.

    A method is called while its object lives. What is registered again is called once. Resets run in the order of
    their registration.
    """
    _resets[_without_object(reset)] = None
    return reset


def _without_object(reset: Callable[[], Any]) -> tuple[Callable[[], object] | None, Callable[..., Any]]:
    """Split a method into a weak reference to its object and its function.

    weakref.WeakMethod would do it too, but prints an AttributeError at the end of a process in which both die at once.
    """
    if not isinstance(reset, MethodType):
        return None, reset
    return weakref.ref(reset.__self__, partial(_remove, reset.__func__)), reset.__func__


def _remove(function: Callable[..., Any], dead: Callable[[], object]) -> None:
    _resets.pop((dead, function), None)


def _run_resets() -> None:
    for reference, reset in tuple(_resets):
        instance = reference() if reference else None
        try:
            if not reference:
                reset()
            elif instance is not None:
                reset(instance)
        except Exception:
            _log.exception("A forked process keeps state of its parent.")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_resets)
