"""Wrapper for our functions that training calls: their errors are logged and do not reach it."""

import logging
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

_log = logging.getLogger("kinetoscope")
P = ParamSpec("P")


def log_failure(*_: object, **__: object) -> None:
    """Log the error that is being handled."""
    _log.exception("Profiling failed. Training continues.")


def training_safe(function: Callable[P, object], on_error: Callable[..., object] = log_failure) -> Callable[P, None]:
    """Return the function without its result and its errors, and without effect while Python exits.

    ``on_error`` gets the arguments of the failed call, and may raise the error that is being handled.
    """
    is_finalizing = sys.is_finalizing  # the globals of modules are None by then

    @wraps(function)
    def safe(*args: P.args, **kwargs: P.kwargs) -> None:
        if is_finalizing():
            return
        try:
            function(*args, **kwargs)
        except Exception:
            on_error(*args, **kwargs)

    return safe
