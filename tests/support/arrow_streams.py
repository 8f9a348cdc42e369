"""Shared by tests: a stream of Arrow's C data interface with any numbers in it, as of a library with a fault."""

import ctypes
from typing import Any


class _Array(ctypes.Structure):
    pass


class _Stream(ctypes.Structure):
    pass


_NUMBERS = [(name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")]
_Array._fields_ = [
    *_NUMBERS,
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private", ctypes.c_void_p),
]
_Next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Array))
_Stream._fields_ = [
    ("get_schema", ctypes.c_void_p),
    ("get_next", _Next),
    ("get_last_error", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private", ctypes.c_void_p),
]
_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class MalformedStream:
    """The stream of a table, whose batch gets other ``numbers``, by name: of its first column, or of itself."""

    def __init__(self, table: Any, numbers: dict[str, int], *, of_column: bool) -> None:
        self.capsule = table.__arrow_c_stream__()
        self._numbers, self._of_column = numbers, of_column
        stream = _Stream.from_address(_pointer_in(self.capsule, b"arrow_array_stream"))
        self._get_next = ctypes.cast(stream.get_next, _Next)
        self._altered = _Next(self._next)
        stream.get_next = self._altered

    def _next(self, stream: int, into: Any) -> int:
        status = self._get_next(stream, into)
        if status == 0 and into.contents.release:
            altered = into.contents.children[0].contents if self._of_column else into.contents
            for name, number in self._numbers.items():
                setattr(altered, name, number)
        return status
