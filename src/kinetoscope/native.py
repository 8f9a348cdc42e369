"""Native or pure: whether our modules in C and C++ do the work, or Python does it. No other file decides.

Python does it where the modules were not built or cannot be loaded, in a Python without the GIL, in other interpreters
of a process than the first, and where `KINETOSCOPE_PURE` asks for it: by any value but an empty one, ``0``, ``false``,
``no`` and ``off``, in capitals or not. Outside of Linux, the module in C has no recorder and no pulse: Python does
those. The functions ask it at each call. A process keeps the recorder that it began with
(`recording/recorder_choice.py`).
"""

import os
import sys
from functools import cache
from importlib.util import find_spec

_MEANS_NO = ("", "0", "false", "no", "off")


def is_pure_wanted() -> bool:
    """Whether `KINETOSCOPE_PURE` asks for Python."""
    return os.environ.get("KINETOSCOPE_PURE", "").strip().lower() not in _MEANS_NO


def native_module():  # its type is the module's own, which has no other name
    """`kinetoscope._native`, which reads and writes files, or None where its twins in Python do the work."""
    return None if is_pure_wanted() else _load_native()[0]


def native_recorder_module():
    """`kinetoscope._native`, if it also has what runs in training: the recorder and the pulse. None where their twins
    in Python do the work."""
    module = native_module()
    return module if hasattr(module, "Recorder") else None


def kineto_save_module():
    """`kinetoscope._kineto_save`, or None where torch saves its traces itself."""
    return None if is_pure_wanted() else _load_kineto_save()


def why_pure() -> str:
    """Why Python does all the work; empty if C does any."""
    if is_pure_wanted():
        return "KINETOSCOPE_PURE is set"
    return _load_native()[1]


def why_pure_recorder() -> str:
    """Why Python records; empty if C does."""
    if native_recorder_module() is not None:
        return ""
    return why_pure() or (
        "the one in C was left out when this was built" if sys.platform == "linux" else "the one in C is for Linux"
    )


@cache
def _load_native():
    """The module and an empty text; or None, and why Python does its work."""
    if not has_gil():
        return None, "this Python has no GIL, which the module in C relies on"
    try:
        from kinetoscope import _native
    except ImportError as error:
        return None, _why_not_loaded(error)
    if not _native.is_usable_here():
        return None, "the module in C works in the first interpreter of a process only"
    return _native, ""


WITHOUT_GIL = (
    "This Python runs without the GIL, on which the recorder relies. Use the Python of the same version that has it: "
    "docs/decisions/028-free-threaded-python-trains-unrecorded.md."
)


def has_gil() -> bool:
    """Return whether this Python has a global interpreter lock, switched on or not to be switched off."""
    asked = getattr(sys, "_is_gil_enabled", None)  # from 3.13 on
    is_free_threaded = "t" in getattr(sys, "abiflags", "")  # a GIL that was switched on does not make it the usual ABI
    return not is_free_threaded and (asked is None or asked())


def _why_not_loaded(error: ImportError) -> str:
    if find_spec("kinetoscope._native") is not None:
        return f"the module in C cannot be loaded here ({error})"
    if sys.platform == "win32":
        return "this installation has no module in C; on Windows only MinGW builds it"
    return (
        "this installation has no module in C; install the sdist or the repository with KINETOSCOPE_REQUIRE_NATIVE=1 "
        "to build it, or to see why it cannot be built"
    )


@cache
def _load_kineto_save():
    if native_module() is None:
        return None
    try:
        from kinetoscope import _kineto_save
    except ImportError:
        return None
    return _kineto_save
