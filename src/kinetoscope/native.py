"""Native or pure: whether our modules in C and C++ do the work, or Python does all of it. No other file decides.

Python does it where the modules were not built or cannot be loaded, and where `KINETOSCOPE_PURE` asks for it: by any
value but an empty one, ``0``, ``false``, ``no`` and ``off``, in capitals or not. The functions ask it at each call. A
process keeps the recorder that it began with (`recording/recorder_choice.py`).
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
    """`kinetoscope._native`, or None where its twins in Python do the work."""
    return None if is_pure_wanted() else _load_native()[0]


def kineto_save_module():
    """`kinetoscope._kineto_save`, or None where torch saves its traces itself."""
    return None if is_pure_wanted() else _load_kineto_save()


def why_pure() -> str:
    """Why Python does the work; empty if C does it."""
    if is_pure_wanted():
        return "KINETOSCOPE_PURE is set"
    module, error = _load_native()
    if module is not None:
        return ""
    if find_spec("kinetoscope._native") is None:
        return f"the module in C was not built when this was installed; {_what_it_needs()}"
    return f"the module in C cannot be loaded here ({error})"


def _what_it_needs() -> str:
    if sys.platform != "linux":
        return "it is for Linux"
    import sysconfig

    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it is for a Python with the GIL"
    return "install it again with KINETOSCOPE_REQUIRE_NATIVE=1 to see why"


@cache
def _load_native():
    """The module and an empty text; or None, and why it cannot be loaded."""
    try:
        from kinetoscope import _native
    except ImportError as error:
        return None, str(error)
    return _native, ""


@cache
def _load_kineto_save():
    try:
        from kinetoscope import _kineto_save
    except ImportError:
        return None
    return _kineto_save
