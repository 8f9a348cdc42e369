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
from kinetoscope.sources.bytecode import (
    ATTRIBUTE_LOADS,
    Expression,
    Operation,
    find_expressions,
    find_loads,
    is_store_to,
    module_codes,
    read_operations,
    skip_copies,
    split_statements,
)
from kinetoscope.sources.private_names import module_children, module_parameters
from kinetoscope.sources.retained_objects import ObjectScan, RetainedObject, read_instance_dict, scan_objects
from kinetoscope.sources.retained_tensors import TensorReader, make_tensor_reader
from kinetoscope.sources.window_source import WindowSource

_MAX_RECORDED = 5
_FLOAT64_NAMES = frozenset(("double", "float64", "DoubleTensor"))
_NUMPY_CONVERSIONS = frozenset(("as_tensor", "asarray", "from_numpy", "tensor"))
_DEFAULT_DTYPE_SETTERS = frozenset(("set_default_dtype", "set_default_tensor_type"))

Location = tuple[str, int]
"""A file and a line in it."""


class Float64Tensors(WindowSource):
    """Notes what is in float64 among what the functions around the loop hold.

    It looks once in a window, at the end of its first batch. Each tensor and module that it finds is an instant of
    category ``float64``, with its name, and with the line that makes it float64 where that is sure. Where float64 is
    torch's default, it says only that, and the line that set it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_scanned = False

    def install(self, run: RunContext) -> None:
        self._has_scanned = False

    @skippable
    def batch_end(self, state: RunState, logger: Any) -> None:
        if self._run is not None and not self._has_scanned and "torch.nn" in sys.modules:
            with scan_objects(self._run, sys._getframe().f_back) as scan:
                self.record_float64(scan)

    def record_float64(self, scan: ObjectScan) -> None:
        """Notes what is in float64 among these objects, unless it has looked in this window already."""
        run, tid = self._run, threading.get_native_id()
        if run is None or self._has_scanned:
            return
        self._has_scanned = True
        torch = sys.modules["torch"]
        if torch.get_default_dtype() is torch.float64:
            found_args = [
                _make_args("torch.get_default_dtype()", "default", "all modules and tensors", _find_default_line(scan))
            ]
        else:
            found_args = [
                _make_args(retained.name, _kind_of(retained), retained.location, _find_origin(retained))
                for retained in _find_float64(scan)
            ]
        found_args.sort(key=lambda args: "line" not in args)
        for args in found_args[:_MAX_RECORDED]:
            name = f"float64 {args['holder']}"
            run.add_event(SourceEvent(name, FLOAT64, run.clock.monotonic_ns(), None, tid, args))


def _make_args(name: str, kind: str, location: str, line: Location | None) -> dict[str, Any]:
    args = {"holder": name, "kind": kind, "place": location}
    return args if line is None else args | {"line": f"{source_name(line[0])}:{line[1]}"}


def _kind_of(retained: RetainedObject) -> str:
    return "tensor" if retained.kind == "tensor" else "module"


def _find_float64(scan: ObjectScan) -> Iterator[RetainedObject]:
    """The tensors and modules in float64, of modules only the outermost."""
    reader = make_tensor_reader()
    if reader is None:
        return
    outer_paths: list[tuple[Any, ...]] = []
    for retained in scan.objects:
        if retained.kind == "tensor":
            if reader.is_float64(retained.value) and not _is_below(retained, outer_paths):
                yield retained
        elif scan.is_module(retained) and not _is_below(retained, outer_paths):
            outer_paths.append(retained.path)
            if _has_float64_parameters(retained.value, reader):
                yield retained


def _is_below(retained: RetainedObject, outer_paths: list[tuple[Any, ...]]) -> bool:
    path = retained.path
    return any(path[: len(above)] == above for above in outer_paths)


def _has_float64_parameters(module: Any, reader: TensorReader) -> bool:
    """Whether a module, or one in it, has parameters in float64."""
    attributes = read_instance_dict(module)
    accessors = (module_parameters, module_children)
    parameters, children = (list((attribute.get(attributes) or {}).values()) for attribute in accessors)
    if any(reader.is_float64(parameter) for parameter in parameters if parameter is not None):
        return True
    return any(_has_float64_parameters(child, reader) for child in children if child is not None)


# -- the line that makes it so


def _find_origin(retained: RetainedObject) -> Location | None:
    """The only line that makes a variable or attribute float64, or of a numpy array; None if that is not sure."""
    found = {
        (expression.code.co_filename, line)
        for expression in find_expressions(retained)
        for line in _find_origin_lines(expression)
    }
    return found.pop() if len(found) == 1 else None


def _find_origin_lines(expression: Expression) -> Iterator[int]:
    operations = list(read_operations(expression.code))
    loads = set(find_loads(expression, operations))
    for statement in split_statements(operations):
        line = _find_named_line(operations, statement, _FLOAT64_NAMES | _NUMPY_CONVERSIONS)
        if line is None:
            continue
        is_changed = any(_is_converted(operations, load, statement) for load in loads & set(statement))
        if is_changed or is_store_to(operations, statement[-1], expression):
            yield line


def _is_converted(operations: Sequence[Operation], load: int, statement: range) -> bool:
    """Whether ``.double()`` of what was loaded is called, or ``.to(torch.float64)``."""
    method = operations[skip_copies(operations, load)]
    if method.name not in ATTRIBUTE_LOADS or not method.is_call:
        return False
    return method.argument == "double" or (
        method.argument in ("to", "type") and _find_named_line(operations, statement, _FLOAT64_NAMES) is not None
    )


def _find_named_line(operations: Sequence[Operation], indexes: Iterable[int], names: frozenset[str]) -> int | None:
    """The line of the first instruction of a statement that has one of the names."""
    found = (operations[index] for index in indexes)
    named = (
        operation.line for operation in found if operation.name.startswith("LOAD_") and str(operation.argument) in names
    )
    return next(named, None)


def _find_default_line(scan: ObjectScan) -> Location | None:
    """The only line that sets torch's default."""
    codes = [code for module in scan.modules for code in module_codes(module)]
    found: set[Location] = set()
    for code in codes:
        if _DEFAULT_DTYPE_SETTERS & set(code.co_names) and is_user_code(code.co_filename):
            operations = list(read_operations(code))
            line = _find_named_line(operations, range(len(operations)), _DEFAULT_DTYPE_SETTERS)
            found |= set() if line is None else {(code.co_filename, line)}
    return found.pop() if len(found) == 1 else None
