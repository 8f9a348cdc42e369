"""Native extension `kinetoscope._native`, and the reason where it cannot be used. No other file imports it.

It records, writes the pulse, and scans and rewrites traces. It is missing where it was not built or cannot be loaded,
in a Python without the GIL, and in every interpreter of a process but the first; on Windows it has no recorder. Then
`native` has stand-ins: markers do nothing, and any other use raises `NativeExtensionError`.
"""

import errno
import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kinetoscope.errors import NativeExtensionError

_INSTALL = "Install a wheel for this system, or build one where there is a compiler: docs/install.md."
_WITHOUT_GIL = (
    "This Python runs without the GIL, on which the recorder relies. Use the Python of the same version that has it: "
    "docs/install.md."
)


def why_not_loaded() -> str:
    """Return the reason why the extension cannot be used at all, and the remedy; empty if it can."""
    return _REASON


def why_not_recorded() -> str:
    """Return the reason why nothing can be recorded here, and the remedy; empty if recording works."""
    if _REASON or hasattr(_MODULE, "Recorder"):
        return _REASON
    return "The native extension was built without the recorder, which Windows does not have."


def require_extension() -> None:
    """Raise `NativeExtensionError` where the extension cannot be used at all."""
    if _REASON:
        raise NativeExtensionError(_REASON)


def require_recorder() -> None:
    """Raise `NativeExtensionError` where nothing can be recorded."""
    if reason := why_not_recorded():
        raise NativeExtensionError(reason)


@cache
def kineto_save_module() -> Any:
    """Return `kinetoscope._kineto_save`, or None where torch saves its traces itself."""
    try:
        from kinetoscope import _kineto_save
    except ImportError:
        return None
    return None if _REASON else _kineto_save


def _load() -> tuple[Any, str]:
    """Return the extension and an empty string; or None and the reason."""
    if not _has_gil():
        return None, _WITHOUT_GIL
    try:
        from kinetoscope import _native
    except ImportError as error:
        if find_spec("kinetoscope._native") is None:
            return None, f"The native extension is not installed. {_INSTALL}"
        return None, f"The native extension cannot be loaded ({error}). See docs/install.md."
    if not _native.is_usable_here():
        return None, "The native extension works in the first interpreter of a process only."
    return _native, ""


def _has_gil() -> bool:
    """Return whether this Python has a global interpreter lock that cannot be switched off."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # from 3.13 on
    is_free_threaded = "t" in getattr(sys, "abiflags", "")  # a GIL that was switched on does not make it the usual ABI
    return not is_free_threaded and (is_enabled is None or is_enabled())


class _IdleRecorder:
    """Recorder of processes that cannot record."""

    loss = float("nan")
    window = 0

    def __init__(self, now: object = None) -> None:
        del now
        self.action = self.batch = 0
        self.listener = self.request = None

    def follow_parent(self, *_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def _do_nothing(self, *_: object) -> None:
        pass

    forget = set_folder = _do_nothing


class _IdleSpan:
    """Span of an `_IdleRecorder`."""

    __slots__ = ("_recorder", "edges", "mask", "name_id")

    def __init__(self, recorder: Any, name_id: int, mask: int, edges: int = 0) -> None:
        self._recorder, self.name_id, self.mask, self.edges = recorder, name_id, mask, edges

    def attach(self, recorder: Any, name_id: int) -> None:
        self._recorder, self.name_id = recorder, name_id

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def _do_nothing(self, *_: object) -> None:
        pass

    begin = end = begin_at = end_at = abandon = instant = counter = _do_nothing


class _StandIn:
    """Value of `native` where the extension, or a part of it, is missing."""

    Recorder, Span = _IdleRecorder, _IdleSpan

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._module, name):
            return getattr(self._module, name)
        return type(
            name, (Exception,), {"__new__": _raise_missing}
        )  # a base class, or what ``except`` names, may be loaded


def _raise_missing(*_: object, **__: object) -> Any:
    raise NativeExtensionError(why_not_recorded())


_MODULE, _REASON = _load()

if TYPE_CHECKING:
    from kinetoscope import _native as native
else:
    native = _MODULE if hasattr(_MODULE, "Recorder") else _StandIn(_MODULE)
