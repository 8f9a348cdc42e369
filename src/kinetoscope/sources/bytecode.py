"""Instructions of functions, and the places that contain an expression such as ``self.history["loss"]``."""

import dis
import re
import sys
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

from kinetoscope.sources.retained_objects import (
    RetainedObject,
    Scope,
    Step,
    defined_classes,
    function_codes,
    method_codes,
)

_NON_READING_LOADS = ("LOAD_FAST_AND_CLEAR", "LOAD_CLOSURE")
_FUNCTION_LOADS = ("LOAD_FAST", "LOAD_DEREF")
_MODULE_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
ATTRIBUTE_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_CONSTANT_LOADS = ("LOAD_CONST", "LOAD_SMALL_INT")
_NO_OPS = ("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "RESUME")
STATEMENT_ENDS = ("STORE_", "POP_TOP", "RETURN", "YIELD", "RAISE")
"""Prefixes of the names of instructions that end a statement."""

_MAX_CODES = 2000
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_PAIR = re.compile(r"(LOAD|STORE)_FAST")


class Operation(NamedTuple):
    """One instruction; ``effect`` is its change of the stack's height."""

    name: str
    argument: Any
    line: int
    effect: int
    is_call: bool = False
    is_jump: bool = False


class Expression(NamedTuple):
    """A variable and the steps from it, as written in a function; ``loads`` are instructions that load the variable."""

    code: CodeType
    loads: tuple[str, ...]
    variable: str
    steps: tuple[Step, ...]


def find_expressions(retained: RetainedObject) -> Iterator[Expression]:
    """Yield every expression in code that can stand for the object."""
    for scope in retained.scopes:
        for expression in _expressions_in_scope(scope, retained.path[scope.begin :]):
            if _uses_names(expression):
                yield expression


def _expressions_in_scope(scope: Scope, path: tuple[Step, ...]) -> Iterator[Expression]:
    """Yield the expressions for a path in all code of a scope."""
    variable, steps = str(path[0].key), path[1:]
    if scope.owner is not None:
        for method in method_codes(scope.owner):
            if method.co_argcount:
                self_name = method.co_varnames[0]
                yield from (
                    Expression(code, _FUNCTION_LOADS, self_name, path)
                    for code in _iterate_nested_codes(method, self_name)
                )
    elif scope.names is not None:
        yield from (Expression(code, _MODULE_LOADS, variable, steps) for code in module_codes(scope))
    elif scope.code is not None:
        yield from (
            Expression(code, _FUNCTION_LOADS, variable, steps) for code in _iterate_nested_codes(scope.code, variable)
        )


def module_codes(scope: Scope) -> Iterator[CodeType]:
    """Yield the code of a module while it runs, of its functions, and of the methods of its classes."""
    names = scope.names or {}
    codes = [*([scope.code] if scope.code else []), *function_codes(names)]
    codes += [code for owner in defined_classes(names) for code in method_codes(owner)]
    for outer in codes[:_MAX_CODES]:
        yield from _iterate_nested_codes(outer)


def split_statements(operations: Sequence[Operation]) -> Iterator[range]:
    """Yield the instruction indexes of each statement, or of a part of one up to a jump."""
    begin = 0
    for index, operation in enumerate(operations):
        if operation.is_jump or operation.name.startswith(STATEMENT_ENDS):
            yield range(begin, index + 1)
            begin = index + 1


def _iterate_nested_codes(code: CodeType, variable: str | None = None) -> Iterator[CodeType]:
    """Yield a function's code and that of functions inside it, which must use ``variable`` if given."""
    yield code
    for inner in code.co_consts:
        if type(inner) is CodeType and (variable is None or variable in inner.co_freevars):
            yield from _iterate_nested_codes(inner, variable)


def _uses_names(expression: Expression) -> bool:
    """Return whether a function has all names of the expression, which is cheaper to check than its instructions."""
    code, loads, variable, steps = expression
    attributes = {step.key for step in steps if step.kind == "attribute"}
    names = code.co_names if loads is _MODULE_LOADS else (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return variable in names and attributes <= set(code.co_names)


def find_loads(expression: Expression, operations: Sequence[Operation]) -> Iterator[int]:
    """Yield the index of the instruction that completes each load of the expression."""
    _, loads, variable, steps = expression
    for index, operation in enumerate(operations):
        if (
            operation.name.startswith(loads)
            and operation.name not in _NON_READING_LOADS
            and operation.argument == variable
        ):
            end = _follow(operations, index, steps)
            if end is not None:
                yield end


def _follow(operations: Sequence[Operation], index: int, steps: Sequence[Step]) -> int | None:
    """Return the index of the last step after a variable was loaded; None if other steps follow."""
    for step in steps:
        if step.kind == "attribute":
            index = skip_copies(operations, index)
            operation = operations[index]
            if operation.name not in ATTRIBUTE_LOADS or operation.argument != step.key or operation.is_call:
                return None
        else:
            consumer = find_consumer(operations, index)
            if consumer is None or not _is_item(operations, consumer, step) or not _reads_item(operations[consumer[0]]):
                return None
            index = consumer[0]
    return index


def is_store_to(operations: Sequence[Operation], index: int, expression: Expression) -> bool:
    """Return whether an instruction stores to the expression."""
    operation, before = operations[index], operations[index - 1]
    if not expression.steps:
        kinds = ("STORE_GLOBAL", "STORE_NAME") if expression.loads is _MODULE_LOADS else ("STORE_FAST", "STORE_DEREF")
        return operation.name in kinds and operation.argument == expression.variable
    last, owner = expression.steps[-1], expression.steps[-2].key if expression.steps[1:] else expression.variable
    if last.kind != "attribute":
        is_key = before.name == "SWAP" or (before.name in _CONSTANT_LOADS and before.argument == last.key)
        return operation.name == "STORE_SUBSCR" and is_key
    is_owner = before.name == "SWAP" or before.argument == owner
    return operation.name == "STORE_ATTR" and operation.argument == last.key and is_owner


def find_consumer(operations: Sequence[Operation], index: int) -> tuple[int, int] | None:
    """Return the instruction that consumes the value that ``index`` left on the stack, and the values above it then.

    None means that it depends on a jump.
    """
    depth = 0
    for later in range(index + 1, len(operations)):
        operation = operations[later]
        effect = operation.effect
        if operation.is_jump:
            return None
        if depth + effect < 0 or (depth + effect == 0 and (effect < 0 or operation.name in ATTRIBUTE_LOADS)):
            return later, depth
        depth += effect
    return None


def _reads_item(operation: Operation) -> bool:
    return operation.name == "BINARY_SUBSCR" or (operation.name == "BINARY_OP" and operation.argument == "[]")


def _is_item(operations: Sequence[Operation], consumer: tuple[int, int], step: Step) -> bool:
    """Return whether the key of an item may be that of the step."""
    index, depth = consumer
    key = operations[index - 1]
    return depth == 1 and (key.name not in _CONSTANT_LOADS or key.argument == step.key)


def skip_copies(operations: Sequence[Operation], index: int) -> int:
    """Return the index of the next instruction that does not copy the top of the stack."""
    index += 1
    while operations[index].name == "COPY" and operations[index].argument == 1:
        index += 1
    return index


def read_operations(code: CodeType) -> Iterator[Operation]:
    """Yield the instructions of a function; combined ones are split in two."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        name, argument = instruction.opname, instruction.argval
        positions = instruction.positions
        line = (positions.lineno if positions else None) or line
        if name in _NO_OPS:
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
