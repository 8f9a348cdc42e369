"""Chooses the recorder of this process when it is imported: the one in C, or the one in Python."""

import logging
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kinetoscope.recording.process import this_process

_log = logging.getLogger("kinetoscope")


def _why_pure() -> str:
    """Why the recorder in Python is used; empty if the one in C is."""
    if os.environ.get("KINETOSCOPE_PURE", "0") not in ("", "0"):
        return "KINETOSCOPE_PURE is set"
    if find_spec("kinetoscope._native") is None:
        return f"the module in C was not built when this was installed; {_what_it_needs()}"
    try:
        from kinetoscope import _native
    except ImportError as error:
        return f"the module in C cannot be loaded here ({error})"
    _choose_clock(_native.use_tsc)
    return ""


def _what_it_needs() -> str:
    if sys.platform != "linux":
        return "it is for Linux"
    import sysconfig

    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it is for a Python with the GIL"
    return "install it again with KINETOSCOPE_REQUIRE_NATIVE=1 to see why"


def _choose_clock(use_tsc: Callable[[], None]) -> None:
    """Uses the processor's time stamp counter, which is quicker to read, if `KINETOSCOPE_CLOCK=tsc` asks for it."""
    if os.environ.get("KINETOSCOPE_CLOCK") == "tsc":
        try:
            use_tsc()
        except OSError as error:
            _log.warning("%s CLOCK_MONOTONIC is used.", error)


WHY_PURE = _why_pure()
IS_PURE = bool(WHY_PURE)
"""Whether the recorder in Python is used."""

if TYPE_CHECKING:
    from kinetoscope._native import StackSamples
    from kinetoscope.recording.native_recorder import NativeRecorder as ProcessRecorder
    from kinetoscope.recording.native_recorder import NativeSpan as ProcessSpan
elif IS_PURE:
    from kinetoscope.recording.pure_recorder import PureRecorder as ProcessRecorder
    from kinetoscope.recording.pure_recorder import PureSpan as ProcessSpan
    from kinetoscope.recording.pure_stack_samples import StackSamples
else:
    from kinetoscope._native import StackSamples
    from kinetoscope.recording.native_recorder import NativeRecorder as ProcessRecorder
    from kinetoscope.recording.native_recorder import NativeSpan as ProcessSpan

__all__ = ["IS_PURE", "WHY_PURE", "ProcessRecorder", "ProcessSpan", "StackSamples", "warn_if_pure"]


def warn_if_pure() -> None:
    """Logs once, when a run begins, that the recorder in Python is used."""
    if IS_PURE:
        was_asked_for = "KINETOSCOPE_PURE" in os.environ
        this_process.once.warn(
            "The recorder in Python is used: a span costs about six times as much as with the one in C, and a kill "
            "loses unsaved records. The one in C is built at installation if there is a C compiler.",
            level=logging.INFO if was_asked_for else logging.WARNING,
        )
