"""The instructions of functions, and where these write an expression such as ``self.history["loss"]``."""

import dis
import re
import sys
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

from kinetoscope.sources.held_objects import Held, Scope, Step, classes_in, codes_in, codes_of_class

_NOT_READING = ("LOAD_FAST_AND_CLEAR", "LOAD_CLOSURE")
_OF_FUNCTIONS = ("LOAD_FAST", "LOAD_DEREF")
_OF_MODULES = ("LOAD_GLOBAL", "LOAD_NAME")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT")
_NOTHING = ("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "RESUME")
STATEMENT_ENDS = ("STORE_", "POP_TOP", "RETURN", "YIELD", "RAISE")
"""With what the names of instructions begin that end a statement."""

_MOST_CODES = 2000
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_PAIR = re.compile(r"(LOAD|STORE)_FAST")


class Operation(NamedTuple):
    """One instruction. ``effect`` is what it does to the height of the stack."""

    name: str
    argument: Any
    line: int
    effect: int
    is_call: bool = False
    is_jump: bool = False


class Expression(NamedTuple):
    """A variable and the steps from it, as a function writes them; ``loads`` are the instructions for the variable."""

    code: CodeType
    loads: tuple[str, ...]
    variable: str
    steps: tuple[Step, ...]


def expressions_of(held: Held) -> Iterator[Expression]:
    """Everywhere in code where the path to an object can be written."""
    for scope in held.scopes:
        for expression in _expressions(scope, held.path[scope.begin :]):
            if _is_named(expression):
                yield expression


def _expressions(scope: Scope, path: tuple[Step, ...]) -> Iterator[Expression]:
    variable, steps = str(path[0].key), path[1:]
    if scope.owner is not None:
        for method in codes_of_class(scope.owner):
            if method.co_argcount:
                own = method.co_varnames[0]
                yield from (Expression(code, _OF_FUNCTIONS, own, path) for code in _with_inner(method, own))
    elif scope.names is not None:
        yield from (Expression(code, _OF_MODULES, variable, steps) for code in codes_of_module(scope))
    elif scope.code is not None:
        yield from (Expression(code, _OF_FUNCTIONS, variable, steps) for code in _with_inner(scope.code, variable))


def codes_of_module(scope: Scope) -> Iterator[CodeType]:
    """The code of a module: of itself while it runs, of its functions, and of the methods of its classes."""
    names = scope.names or {}
    codes = [*([scope.code] if scope.code else []), *codes_in(names)]
    codes += [code for owner in classes_in(names) for code in codes_of_class(owner)]
    for outer in codes[:_MOST_CODES]:
        yield from _with_inner(outer)


def statements_in(operations: Sequence[Operation]) -> Iterator[range]:
    """The places of the instructions of each statement, or of a part of one up to a jump."""
    begin = 0
    for place, operation in enumerate(operations):
        if operation.is_jump or operation.name.startswith(STATEMENT_ENDS):
            yield range(begin, place + 1)
            begin = place + 1


def _with_inner(code: CodeType, variable: str | None = None) -> Iterator[CodeType]:
    """The code of a function, and of those inside of it, which must use the ``variable`` of the function."""
    yield code
    for inner in code.co_consts:
        if type(inner) is CodeType and (variable is None or variable in inner.co_freevars):
            yield from _with_inner(inner, variable)


def _is_named(expression: Expression) -> bool:
    """Whether the function has all names of the expression, which is quicker to see than its instructions."""
    code, loads, variable, steps = expression
    attributes = {step.key for step in steps if step.kind == "attribute"}
    names = code.co_names if loads is _OF_MODULES else (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return variable in names and attributes <= set(code.co_names)


def loads_of(expression: Expression, operations: Sequence[Operation]) -> Iterator[int]:
    """The places of the instructions that have loaded the expression."""
    _, loads, variable, steps = expression
    for place, operation in enumerate(operations):
        if operation.name.startswith(loads) and operation.name not in _NOT_READING and operation.argument == variable:
            end = _follow(operations, place, steps)
            if end is not None:
                yield end


def _follow(operations: Sequence[Operation], place: int, steps: Sequence[Step]) -> int | None:
    """The place of the last step after a variable was loaded, if these steps follow."""
    for step in steps:
        if step.kind == "attribute":
            place = after_copies(operations, place)
            operation = operations[place]
            if operation.name not in ATTRIBUTES or operation.argument != step.key or operation.is_call:
                return None
        else:
            used = use_of(operations, place)
            if used is None or not _is_item(operations, used, step) or not _reads_item(operations[used[0]]):
                return None
            place = used[0]
    return place


def stores(operations: Sequence[Operation], place: int, expression: Expression) -> bool:
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


def use_of(operations: Sequence[Operation], place: int) -> tuple[int, int] | None:
    """The instruction that takes what the one at ``place`` left on the stack, and how much lies above it then; None if
    that depends on a jump."""
    above = 0
    for later in range(place + 1, len(operations)):
        operation = operations[later]
        effect = operation.effect
        if operation.is_jump:
            return None
        if above + effect < 0 or (above + effect == 0 and (effect < 0 or operation.name in ATTRIBUTES)):
            return later, above
        above += effect
    return None


def _reads_item(operation: Operation) -> bool:
    return operation.name == "BINARY_SUBSCR" or (operation.name == "BINARY_OP" and operation.argument == "[]")


def _is_item(operations: Sequence[Operation], used: tuple[int, int], step: Step) -> bool:
    """Whether the key of an item may be that of the step."""
    place, above = used
    key = operations[place - 1]
    return above == 1 and (key.name not in _CONSTANTS or key.argument == step.key)


def after_copies(operations: Sequence[Operation], place: int) -> int:
    """The next instruction that does not just copy what lies on the stack."""
    place += 1
    while operations[place].name == "COPY" and operations[place].argument == 1:
        place += 1
    return place


def operations_of(code: CodeType) -> Iterator[Operation]:
    """The instructions of a function; those that do two things at once, as two."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        name, argument = instruction.opname, instruction.argval
        positions = instruction.positions
        line = (positions.lineno if positions else None) or line
        if name in _NOTHING:
            continue
        halves = _PAIR.findall(name)
        if len(halves) > 1:
            for half, variable in zip(halves, argument, strict=True):
                yield Operation(f"{half}_FAST", variable, line, 1 if half == "LOAD" else -1)
            continue
        is_call = name == "LOAD_METHOD" or (
            name == "LOAD_ATTR" and sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
        )
        argument = instruction.argrepr if name == "BINARY_OP" else argument
        has_argument = instruction.opcode >= dis.HAVE_ARGUMENT
        effect = dis.stack_effect(instruction.opcode, instruction.arg if has_argument else None, jump=False)
        yield Operation(name, argument, line, effect, is_call, instruction.opcode in _JUMPS)
