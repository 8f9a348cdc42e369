"""sources: which tensors and modules around the loop are in float64, and the line that makes them so."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kinetoscope.core.job.event import skippable
from kinetoscope.core.job.state import RunState
from kinetoscope.core.paths.source_files import is_user_code, source_name
from kinetoscope.formats.own_names import FLOAT64
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.held_objects import Held, HeldObjects, look, own_attributes
from kinetoscope.sources.held_tensors import TensorFacts, find_facts
from kinetoscope.sources.instructions import (
    ATTRIBUTES,
    Expression,
    Operation,
    after_copies,
    codes_of_module,
    expressions_of,
    loads_of,
    operations_of,
    statements_in,
    stores,
)
from kinetoscope.sources.private_names import module_children, module_parameters
from kinetoscope.sources.window_source import WindowSource

_MOST_NOTED = 5
_DOUBLE = frozenset(("double", "float64", "DoubleTensor"))
_FROM_NUMPY = frozenset(("as_tensor", "asarray", "from_numpy", "tensor"))
_DEFAULT = frozenset(("set_default_dtype", "set_default_tensor_type"))

Place = tuple[str, int]
"""A file and a line in it."""


class Float64Tensors(WindowSource):
    """Notes what is in float64 among what the functions around the loop hold.

    It looks once in a window, at the end of its first batch. Each tensor and module that it finds is an instant of
    category ``float64``, with its name, and with the line that makes it float64 where that is sure. Where float64 is
    torch's default, it says only that, and the line that set it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_looked = False

    def install(self, run: RunContext) -> None:
        self._has_looked = False

    @skippable
    def batch_end(self, state: RunState, logger: Any) -> None:
        if self._run is not None and not self._has_looked and "torch.nn" in sys.modules:
            with look(self._run, sys._getframe().f_back) as objects:
                self.look_at(objects)

    def look_at(self, objects: HeldObjects) -> None:
        """Notes what is in float64 among these objects, unless it has looked in this window already."""
        run, tid = self._run, threading.get_native_id()
        if run is None or self._has_looked:
            return
        self._has_looked = True
        torch = sys.modules["torch"]
        if torch.get_default_dtype() is torch.float64:
            notes = [_note("torch.get_default_dtype()", "default", "all modules and tensors", _default_line(objects))]
        else:
            notes = [_note(held.name, _word_for(held), held.place, _origin(held)) for held in _in_float64(objects)]
        notes.sort(key=lambda note: "line" not in note)
        for note in notes[:_MOST_NOTED]:
            name = f"float64 {note['holder']}"
            run.add_event(SourceEvent(name, FLOAT64, run.clock.monotonic_ns(), None, tid, note))


def _note(name: str, kind: str, place: str, line: Place | None) -> dict[str, Any]:
    note = {"holder": name, "kind": kind, "place": place}
    return note if line is None else note | {"line": f"{source_name(line[0])}:{line[1]}"}


def _word_for(held: Held) -> str:
    return "tensor" if held.kind == "tensor" else "module"


def _in_float64(objects: HeldObjects) -> Iterator[Held]:
    """The tensors and modules in float64, of modules only the outermost."""
    facts = find_facts()
    if facts is None:
        return
    outer: list[tuple[Any, ...]] = []
    for held in objects.found:
        if held.kind == "tensor":
            if facts.is_double(held.value) and not _is_below(held, outer):
                yield held
        elif objects.is_module(held) and not _is_below(held, outer):
            outer.append(held.path)
            if _is_double(held.value, facts):
                yield held


def _is_below(held: Held, outer: list[tuple[Any, ...]]) -> bool:
    path = held.path
    return any(path[: len(above)] == above for above in outer)


def _is_double(module: Any, facts: TensorFacts) -> bool:
    """Whether a module, or one in it, has parameters in float64."""
    attributes = own_attributes(module)
    inside = (module_parameters, module_children)
    parameters, children = (list((attribute.get(attributes) or {}).values()) for attribute in inside)
    if any(facts.is_double(parameter) for parameter in parameters if parameter is not None):
        return True
    return any(_is_double(child, facts) for child in children if child is not None)


# -- the line that makes it so


def _origin(held: Held) -> Place | None:
    """The only line that makes a variable or attribute float64, or of a numpy array; None if that is not sure."""
    found = {(expression.code.co_filename, line) for expression in expressions_of(held) for line in _lines(expression)}
    return found.pop() if len(found) == 1 else None


def _lines(expression: Expression) -> Iterator[int]:
    operations = list(operations_of(expression.code))
    loads = set(loads_of(expression, operations))
    for places in statements_in(operations):
        line = _named_line(operations, places, _DOUBLE | _FROM_NUMPY)
        if line is None:
            continue
        is_changed = any(_is_converted(operations, place, places) for place in loads & set(places))
        if is_changed or stores(operations, places[-1], expression):
            yield line


def _is_converted(operations: Sequence[Operation], place: int, statement: range) -> bool:
    """Whether ``.double()`` of what was loaded is called, or ``.to(torch.float64)``."""
    method = operations[after_copies(operations, place)]
    if method.name not in ATTRIBUTES or not method.is_call:
        return False
    return method.argument == "double" or (
        method.argument in ("to", "type") and _named_line(operations, statement, _DOUBLE) is not None
    )


def _named_line(operations: Sequence[Operation], places: Iterable[int], names: frozenset[str]) -> int | None:
    """The line of the first instruction of a statement that has one of the names."""
    found = (operations[place] for place in places)
    named = (one.line for one in found if one.name.startswith("LOAD_") and str(one.argument) in names)
    return next(named, None)


def _default_line(objects: HeldObjects) -> Place | None:
    """The only line that sets torch's default."""
    codes = [code for module in objects.modules for code in codes_of_module(module)]
    found: set[Place] = set()
    for code in codes:
        if _DEFAULT & set(code.co_names) and is_user_code(code.co_filename):
            operations = list(operations_of(code))
            line = _named_line(operations, range(len(operations)), _DEFAULT)
            found |= set() if line is None else {(code.co_filename, line)}
    return found.pop() if len(found) == 1 else None
