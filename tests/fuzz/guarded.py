"""Text at whose end readable memory ends, so that C that reads on after it crashes instead of reading anything."""

import ctypes
import mmap
from typing import Any

from kinetoscope import _native

_MAX_BYTES = 1 << 20
_SURVEY, _REWRITE, _SCAN = "survey", "rewrite", "scan"
_PROTECTED = 0  # PROT_NONE


class _GuardedPages:
    """Pages before a protected one."""

    def __init__(self) -> None:
        self._pages = mmap.mmap(-1, _MAX_BYTES + mmap.PAGESIZE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(begin + _MAX_BYTES), mmap.PAGESIZE, _PROTECTED) != 0:
            raise OSError(ctypes.get_errno(), "The page after the text cannot be protected.")

    def with_text(self, text: bytes | bytearray | memoryview) -> memoryview:
        """Return the text, directly before the protected page."""
        view = memoryview(self._pages)[_MAX_BYTES - len(text) : _MAX_BYTES]
        view[:] = text
        return view


_PAGES = _GuardedPages()


class _Guarded:
    """An object of C's whose methods get texts that a protected page follows."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._made, name)
        return self._guarded(method) if name in (_SURVEY, _REWRITE, _SCAN) else method

    @staticmethod
    def _guarded(method: Any) -> Any:
        def call(text: bytes | bytearray, start: int, end: int, *more: Any) -> tuple[int, ...]:
            position, *others = method(_PAGES.with_text(text[start:end]), 0, end - start, *more)
            return start + position, *others

        return call


def guard_texts() -> None:
    """From now on all that C reads of traces has a protected page behind it."""
    for name in ("TraceText", "Scanner"):
        kind = getattr(_native, name)
        setattr(_native, name, lambda *given, kind=kind: _Guarded(kind(*given)))
