"""The line of code that makes something grow, found in the instructions of functions.

A line is named only if the instructions leave no doubt: one line, and no other, adds to what an expression such as
``self.history["loss"]`` stands for.
"""

from collections.abc import Iterator, Sequence

from kinetoscope.sources.held_objects import Held
from kinetoscope.sources.instructions import (
    STATEMENT_ENDS,
    Expression,
    Operation,
    after_copies,
    expressions_of,
    loads_of,
    operations_of,
    stores,
    use_of,
)

_ADDING = frozenset(("add", "append", "appendleft", "extend", "insert", "setdefault", "update"))
_SUMS = ("+", "+=", "|", "|=")

Place = tuple[str, int]
"""A file and a line in it."""


def growing_line(held: Held) -> Place | None:
    """The only line that adds to a container, or that makes a tensor of itself; None if that is not sure."""
    found: set[Place] = set()
    for expression in expressions_of(held):
        found |= {(expression.code.co_filename, line) for line in _lines(expression, held.kind)}
    return found.pop() if len(found) == 1 else None


def _lines(expression: Expression, kind: str) -> Iterator[int]:
    operations = list(operations_of(expression.code))
    for end in loads_of(expression, operations):
        line = _growth(operations, end, expression, kind)
        if line is not None:
            yield line


def _growth(operations: Sequence[Operation], place: int, expression: Expression, kind: str) -> int | None:
    """The line, if what was loaded last grows there."""
    if kind == "tensor":
        return _assigned(operations, place, expression)
    method = operations[after_copies(operations, place)]
    if method.is_call:
        return method.line if method.argument in _ADDING else None
    used = use_of(operations, place)
    if used is None:
        return None
    operation, above = operations[used[0]], used[1]
    if operation.name == "STORE_SUBSCR" and above == 1 and kind == "dict":
        return operation.line
    is_sum = operation.name == "BINARY_OP" and operation.argument in _SUMS
    return _assigned(operations, used[0], expression, at_once=True) if is_sum else None


def _assigned(
    operations: Sequence[Operation], place: int, expression: Expression, *, at_once: bool = False
) -> int | None:
    """The line in which the statement ends by an assignment to the expression; ``at_once``, by the next instruction."""
    for end in range(place + 1, len(operations)):
        operation = operations[end]
        if operation.is_jump:
            return None
        if operation.name.startswith(STATEMENT_ENDS):
            return operation.line if stores(operations, end, expression) else None
        if at_once and operation.name != "SWAP" and not operation.name.startswith("LOAD_"):
            return None
    return None
