"""The line of code that makes something grow, found in the instructions of functions, without their sources.

A line is named only if the instructions leave no doubt: one line, and no other, adds to what an expression such as
``self.history["loss"]`` stands for.
"""

import dis
import re
import sys
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

from kinetoscope.sources.held_objects import Held, Scope, Step, classes_in, codes_in, codes_of_class

_ADDING = frozenset(("add", "append", "appendleft", "extend", "insert", "setdefault", "update"))
_NOT_READING = ("LOAD_FAST_AND_CLEAR", "LOAD_CLOSURE")
_OF_FUNCTIONS = ("LOAD_FAST", "LOAD_DEREF")
_OF_MODULES = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT")
_ENDS = ("STORE_", "POP_TOP", "RETURN", "YIELD", "RAISE")
_SUMS = ("+", "+=", "|", "|=")
_MOST_CODES = 2000
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_PAIR = re.compile(r"(LOAD|STORE)_FAST")

Place = tuple[str, int]
"""A file and a line in it."""


class _Operation(NamedTuple):
    """One instruction. ``effect`` is what it does to the height of the stack."""

    name: str
    argument: Any
    line: int
    effect: int
    is_call: bool = False
    is_jump: bool = False


class _Expression(NamedTuple):
    """A variable and the steps from it, as a function writes them; ``loads`` are the instructions for the variable."""

    code: CodeType
    loads: tuple[str, ...]
    variable: str
    steps: tuple[Step, ...]


def growing_line(held: Held) -> Place | None:
    """The only line that adds to a container, or that makes a tensor of itself; None if that is not sure."""
    found: set[Place] = set()
    for scope in held.scopes:
        for expression in _expressions(scope, held.path[scope.begin :]):
            found |= {(expression.code.co_filename, line) for line in _lines(expression, held.kind)}
    return found.pop() if len(found) == 1 else None


def _expressions(scope: Scope, path: tuple[Step, ...]) -> Iterator[_Expression]:
    """Everywhere in code where the path can be written."""
    variable, steps = str(path[0].key), path[1:]
    if scope.owner is not None:
        for method in codes_of_class(scope.owner):
            if method.co_argcount:
                own = method.co_varnames[0]
                yield from (_Expression(code, _OF_FUNCTIONS, own, path) for code in _with_inner(method, own))
    elif scope.names is not None:
        codes = [*([scope.code] if scope.code else []), *codes_in(scope.names)]
        codes += [code for owner in classes_in(scope.names) for code in codes_of_class(owner)]
        for outer in codes[:_MOST_CODES]:
            yield from (_Expression(code, _OF_MODULES, variable, steps) for code in _with_inner(outer))
    elif scope.code is not None:
        yield from (_Expression(code, _OF_FUNCTIONS, variable, steps) for code in _with_inner(scope.code, variable))


def _with_inner(code: CodeType, variable: str | None = None) -> Iterator[CodeType]:
    """The code of a function, and of those inside of it, which must use the ``variable`` of the function."""
    yield code
    for inner in code.co_consts:
        if type(inner) is CodeType and (variable is None or variable in inner.co_freevars):
            yield from _with_inner(inner, variable)


def _lines(expression: _Expression, kind: str) -> Iterator[int]:
    code, loads, variable, steps = expression
    attributes = {step.key for step in steps if step.kind == "attribute"}
    names = code.co_names if loads is _OF_MODULES else (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    if variable not in names or not attributes <= set(code.co_names):
        return
    operations = list(_operations(code))
    for place, operation in enumerate(operations):
        if operation.name.startswith(loads) and operation.name not in _NOT_READING and operation.argument == variable:
            end = _follow(operations, place, steps)
            line = None if end is None else _growth(operations, end, expression, kind)
            if line is not None:
                yield line


def _follow(operations: Sequence[_Operation], place: int, steps: Sequence[Step]) -> int | None:
    """The place of the last step after a variable was loaded, if these steps follow."""
    for step in steps:
        if step.kind == "attribute":
            place = _after_copies(operations, place)
            operation = operations[place]
            if operation.name not in _ATTRIBUTES or operation.argument != step.key or operation.is_call:
                return None
        else:
            used = _use(operations, place)
            if used is None or not _is_item(operations, used, step) or not _reads_item(operations[used[0]]):
                return None
            place = used[0]
    return place


def _growth(operations: Sequence[_Operation], place: int, expression: _Expression, kind: str) -> int | None:
    """The line, if what was loaded last grows there."""
    if kind == "tensor":
        return _assigned(operations, place, expression)
    method = operations[_after_copies(operations, place)]
    if method.name in _ATTRIBUTES and method.is_call:
        return method.line if method.argument in _ADDING else None
    used = _use(operations, place)
    if used is None:
        return None
    operation, above = operations[used[0]], used[1]
    if operation.name == "STORE_SUBSCR" and above == 1 and kind == "dict":
        return operation.line
    is_sum = operation.name == "BINARY_OP" and operation.argument in _SUMS
    return _assigned(operations, used[0], expression, at_once=True) if is_sum else None


def _assigned(
    operations: Sequence[_Operation], place: int, expression: _Expression, *, at_once: bool = False
) -> int | None:
    """The line in which the statement ends by an assignment to the expression; ``at_once``, by the next instruction."""
    for end in range(place + 1, len(operations)):
        operation = operations[end]
        if operation.is_jump:
            return None
        if operation.name.startswith(_ENDS):
            return operation.line if _stores(operations, end, expression) else None
        if at_once and operation.name != "SWAP" and not operation.name.startswith("LOAD_"):
            return None
    return None


def _stores(operations: Sequence[_Operation], place: int, expression: _Expression) -> bool:
    """Whether an instruction stores to the expression."""
    operation, before = operations[place], operations[place - 1]
    if not expression.steps:
        kinds = ("STORE_GLOBAL", "STORE_NAME") if expression.loads is _OF_MODULES else ("STORE_FAST", "STORE_DEREF")
        return operation.name in kinds and operation.argument == expression.variable
    last, owner = expression.steps[-1], expression.steps[-2].key if expression.steps[1:] else expression.variable
    if last.kind != "attribute":
        is_key = before.name == "SWAP" or (before.name in _CONSTANTS and before.argument == last.key)
        return operation.name == "STORE_SUBSCR" and is_key
    is_owner = before.name == "SWAP" or before.argument == owner
    return operation.name == "STORE_ATTR" and operation.argument == last.key and is_owner


def _use(operations: Sequence[_Operation], place: int) -> tuple[int, int] | None:
    """The instruction that takes what the one at ``place`` left on the stack, and how much lies above it then; None if
    that depends on a jump."""
    above = 0
    for later in range(place + 1, len(operations)):
        operation = operations[later]
        effect = operation.effect
        if operation.is_jump:
            return None
        if above + effect < 0 or (above + effect == 0 and (effect < 0 or operation.name in _ATTRIBUTES)):
            return later, above
        above += effect
    return None


def _reads_item(operation: _Operation) -> bool:
    return operation.name == "BINARY_SUBSCR" or (operation.name == "BINARY_OP" and operation.argument == "[]")


def _is_item(operations: Sequence[_Operation], used: tuple[int, int], step: Step) -> bool:
    """Whether the key of an item may be that of the step."""
    place, above = used
    key = operations[place - 1]
    return above == 1 and (key.name not in _CONSTANTS or key.argument == step.key)


def _after_copies(operations: Sequence[_Operation], place: int) -> int:
    """The next instruction that does not just copy what lies on the stack."""
    place += 1
    while operations[place].name == "COPY" and operations[place].argument == 1:
        place += 1
    return place


def _operations(code: CodeType) -> Iterator[_Operation]:
    """The instructions of a function; those that do two things at once, as two."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        name, argument = instruction.opname, instruction.argval
        positions = instruction.positions
        line = (positions.lineno if positions else None) or line
        if name in ("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "RESUME"):
            continue
        halves = _PAIR.findall(name)
        if len(halves) > 1:
            for half, variable in zip(halves, argument, strict=True):
                yield _Operation(f"{half}_FAST", variable, line, 1 if half == "LOAD" else -1)
            continue
        is_call = name == "LOAD_METHOD" or (
            name == "LOAD_ATTR" and sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
        )
        argument = instruction.argrepr if name == "BINARY_OP" else argument
        has_argument = instruction.opcode >= dis.HAVE_ARGUMENT
        effect = dis.stack_effect(instruction.opcode, instruction.arg if has_argument else None, jump=False)
        yield _Operation(name, argument, line, effect, is_call, instruction.opcode in _JUMPS)
