"""torch: what may be called in the loaded libtorch without Python's lock. Finished results flow in, names flow out.

libtorch promises no interface here. So each thing is looked for: the function by its name in the library, the object's
type by pybind11, and the places of virtual functions in the header that this torch was built with, which is beside it.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

LIBRARY = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
_INCLUDE = Path(torch.__file__).parent / "include"
_RESULT = "const std::vector<const libkineto::ITraceActivity*>* traceActivities();"
_TABLE = re.compile(r"struct ITraceActivity \{\n(.*?)\n\};", re.DOTALL)
_VIRTUAL = re.compile(r"^\s*(?:\[\[nodiscard\]\]\s*)?virtual\s+([^(;]*?)(~?\w+)\(([^)]*)\)", re.MULTILINE)
_WANTED = {"name": "const std::string", "timestamp": "int64_t", "duration": "int64_t"}

Slots = tuple[int, int, int]
"""The places of ``name``, ``timestamp`` and ``duration`` among the virtual functions of Kineto's activities."""


def saves_without_lock(kineto_results: Any) -> bool:
    """Whether Kineto can save these results while other threads run Python."""
    try:
        from kinetoscope import _kineto_save
    except ImportError:
        return False
    return _kineto_save.can_save(kineto_results, LIBRARY)


def odd_names(kineto_results: Any) -> list[tuple[int, str, int, int]] | None:
    """The activities whose names Kineto writes otherwise: number, name, begin and duration in nanoseconds, in order.

    None where they cannot be read without Python's lock.
    """
    slots = _slots()
    if slots is None or not saves_without_lock(kineto_results):
        return None
    from kinetoscope import _kineto_save

    return _kineto_save.odd_names(kineto_results, LIBRARY, slots)


@lru_cache(maxsize=1)
def _slots() -> Slots | None:
    """As torch's headers say; None if they are not there, or do not say it in the words that we know."""
    try:
        result = (_INCLUDE / "torch" / "csrc" / "autograd" / "profiler_kineto.h").read_text(encoding="utf-8")
        activity = (_INCLUDE / "kineto" / "ITraceActivity.h").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return find_slots(activity) if _RESULT in result else None


def find_slots(header: str) -> Slots | None:
    """The places in the declaration of `ITraceActivity`; a destructor has two, and must be the first."""
    table = _TABLE.search(header)
    text = table[1] if table else ""
    functions = _VIRTUAL.findall(text)
    if not functions or functions[0][1] != "~ITraceActivity" or len(functions) != text.count("virtual "):
        return None
    places = {name: place for place, (_, name, _) in enumerate(functions, 1)}
    types = {name: kind.strip() for kind, name, arguments in functions if not arguments}
    if len(places) != len(functions) or any(types.get(name) != kind for name, kind in _WANTED.items()):
        return None
    return places["name"], places["timestamp"], places["duration"]
