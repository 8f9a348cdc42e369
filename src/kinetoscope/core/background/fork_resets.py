"""Resets of this process's state in forked children: one registry for functions and for objects that come and go."""

import logging
import os
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar

_log = logging.getLogger("kinetoscope")
_Reset = TypeVar("_Reset", bound=Callable[[], Any])

_resets: dict[Callable[[], Any], None] = {}
"""Functions and weak methods, in the order of their registration."""


def reset_after_fork(reset: _Reset) -> _Reset:
    """Call a function or a bound method first in every process that is forked from now on.

    A method is called while its object lives. What is registered again is called once. Resets run in the order of
    their registration.
    """
    _resets[_without_object(reset)] = None
    return reset


def _without_object(reset: Callable[[], Any]) -> Callable[[], Any]:
    """Return a method as a weak one, which is removed with its object; a function as it is."""
    return weakref.WeakMethod(reset, _resets.pop) if isinstance(reset, MethodType) else reset


def _run_resets() -> None:
    for each in tuple(_resets):
        reset = each() if isinstance(each, weakref.WeakMethod) else each
        try:
            if reset is not None:
                reset()
        except Exception:
            _log.exception("A forked process keeps state of its parent.")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_resets)
