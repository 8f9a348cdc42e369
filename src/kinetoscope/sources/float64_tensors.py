"""Tensors and modules around the loop that are in float64, with the line that introduces it."""

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kinetoscope.core.job.event import skippable
from kinetoscope.core.job.state import RunState
from kinetoscope.core.paths.source_files import is_user_code, source_name
from kinetoscope.formats.trace_names import FLOAT64
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
"""File and line number."""


class Float64Tensors(WindowSource):
    """Record the float64 tensors and modules that the functions around the loop reference.

    One scan per window, at the end of its first batch. Each tensor or module found is an instant of category
    ``float64`` with its name and, where it is unambiguous, the line that makes it float64. Where float64 is torch's
    default dtype, the only instant is the default and the line that sets it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_scanned = False

    def install(self, run: RunContext) -> None:
        """Allow one scan in the window that opens."""
        self._has_scanned = False

    @skippable
    def batch_end(self, state: RunState, logger: Any) -> None:
        """Scan at the end of the window's first batch, once torch.nn is loaded."""
        if self._run is not None and not self._has_scanned and "torch.nn" in sys.modules:
            with scan_objects(self._run, sys._getframe().f_back) as scan:
                self.record_float64(scan)

    def record_float64(self, scan: ObjectScan) -> None:
        """Record the float64 objects of a scan, unless this window has been scanned already."""
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
                _make_args(retained.name, _describe_kind(retained), retained.location, _find_origin(retained))
                for retained in _find_float64(scan)
            ]
        found_args.sort(key=lambda args: "line" not in args)
        for args in found_args[:_MAX_RECORDED]:
            name = f"float64 {args['holder']}"
            run.add_event(SourceEvent(name, FLOAT64, run.clock.monotonic_ns(), None, tid, args))


def _make_args(name: str, kind: str, location: str, line: Location | None) -> dict[str, Any]:
    """Return the args of the instant for one float64 object."""
    args = {"holder": name, "kind": kind, "location": location}
    return args if line is None else args | {"line": f"{source_name(line[0])}:{line[1]}"}


def _describe_kind(retained: RetainedObject) -> str:
    return "tensor" if retained.kind == "tensor" else "module"


def _find_float64(scan: ObjectScan) -> Iterator[RetainedObject]:
    """Yield the tensors and the outermost modules that are in float64."""
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
    """Return whether an object is inside one of the modules at ``outer_paths``."""
    path = retained.path
    return any(path[: len(above)] == above for above in outer_paths)


def _has_float64_parameters(module: Any, reader: TensorReader) -> bool:
    """Return whether a module, or one inside it, has float64 parameters."""
    attributes = read_instance_dict(module)
    accessors = (module_parameters, module_children)
    parameters, children = (list((attribute.get(attributes) or {}).values()) for attribute in accessors)
    if any(reader.is_float64(parameter) for parameter in parameters if parameter is not None):
        return True
    return any(_has_float64_parameters(child, reader) for child in children if child is not None)


# -- the line that introduces float64


def _find_origin(retained: RetainedObject) -> Location | None:
    """Return the line that makes an object float64 or creates it from numpy; None unless exactly one line does."""
    found = {
        (expression.code.co_filename, line)
        for expression in find_expressions(retained)
        for line in _find_origin_lines(expression)
    }
    return found.pop() if len(found) == 1 else None


def _find_origin_lines(expression: Expression) -> Iterator[int]:
    """Yield the lines whose statements make the expression float64."""
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
    """Return whether the loaded object is converted by ``.double()`` or ``.to(torch.float64)``."""
    method = operations[skip_copies(operations, load)]
    if method.name not in ATTRIBUTE_LOADS or not method.is_call:
        return False
    return method.argument == "double" or (
        method.argument in ("to", "type") and _find_named_line(operations, statement, _FLOAT64_NAMES) is not None
    )


def _find_named_line(operations: Sequence[Operation], indexes: Iterable[int], names: frozenset[str]) -> int | None:
    """Return the line of the first load of one of the names."""
    found = (operations[index] for index in indexes)
    named = (
        operation.line for operation in found if operation.name.startswith("LOAD_") and str(operation.argument) in names
    )
    return next(named, None)


def _find_default_line(scan: ObjectScan) -> Location | None:
    """Return the only line that sets torch's default dtype; None unless exactly one line does."""
    codes = [code for module in scan.modules for code in module_codes(module)]
    found: set[Location] = set()
    for code in codes:
        if _DEFAULT_DTYPE_SETTERS & set(code.co_names) and is_user_code(code.co_filename):
            operations = list(read_operations(code))
            line = _find_named_line(operations, range(len(operations)), _DEFAULT_DTYPE_SETTERS)
            found |= set() if line is None else {(code.co_filename, line)}
    return found.pop() if len(found) == 1 else None
