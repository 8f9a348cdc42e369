"""Source line that makes a container or a graph grow, found in bytecode.

A line is reported only if it is unambiguous: the one line that adds to an expression such as ``self.history["loss"]``.
"""

from collections.abc import Iterator, Sequence

from kinetoscope.sources.bytecode import (
    STATEMENT_ENDS,
    Expression,
    Operation,
    find_consumer,
    find_expressions,
    find_loads,
    is_store_to,
    read_operations,
    skip_copies,
)
from kinetoscope.sources.retained_objects import RetainedObject

_GROWING_METHODS = frozenset(("add", "append", "appendleft", "extend", "insert", "setdefault", "update"))
_SUM_OPERATORS = ("+", "+=", "|", "|=")

Location = tuple[str, int]
"""File and line number."""


def find_leak_line(retained: RetainedObject) -> Location | None:
    """Return the only line that adds to a container, or accumulates a tensor; None unless exactly one line does."""
    found: set[Location] = set()
    for expression in find_expressions(retained):
        found |= {(expression.code.co_filename, line) for line in _find_lines(expression, retained.kind)}
    return found.pop() if len(found) == 1 else None


def _find_lines(expression: Expression, kind: str) -> Iterator[int]:
    """Yield the lines of a function that make the expression's object grow."""
    operations = list(read_operations(expression.code))
    for end in find_loads(expression, operations):
        line = _find_growth(operations, end, expression, kind)
        if line is not None:
            yield line


def _find_growth(operations: Sequence[Operation], index: int, expression: Expression, kind: str) -> int | None:
    """Return the line at which the object loaded at ``index`` grows; None if it does not grow there."""
    if kind == "tensor":
        return _find_assignment(operations, index, expression)
    method = operations[skip_copies(operations, index)]
    if method.is_call:
        return method.line if method.argument in _GROWING_METHODS else None
    consumer = find_consumer(operations, index)
    if consumer is None:
        return None
    operation, depth = operations[consumer[0]], consumer[1]
    if operation.name == "STORE_SUBSCR" and depth == 1 and kind == "dict":
        return operation.line
    is_sum = operation.name == "BINARY_OP" and operation.argument in _SUM_OPERATORS
    return _find_assignment(operations, consumer[0], expression, next_only=True) if is_sum else None


def _find_assignment(
    operations: Sequence[Operation], index: int, expression: Expression, *, next_only: bool = False
) -> int | None:
    """Return the line of the assignment to the expression that ends the statement; None if there is none.

    With ``next_only``, the assignment must follow directly.
    """
    for end in range(index + 1, len(operations)):
        operation = operations[end]
        if operation.is_jump:
            return None
        if operation.name.startswith(STATEMENT_ENDS):
            return operation.line if is_store_to(operations, end, expression) else None
        if next_only and operation.name != "SWAP" and not operation.name.startswith("LOAD_"):
            return None
    return None
