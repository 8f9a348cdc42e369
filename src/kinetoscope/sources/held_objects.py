"""What the functions around a training loop hold: their variables, and what is below them, with the names that lead
there.

No code of the user's is called: containers are read by the methods of Python's own classes, attributes from the dict of
their object. Nothing is kept alive once the walk is over.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from inspect import CO_OPTIMIZED
from itertools import chain, islice, repeat
from threading import get_native_id
from time import thread_time_ns
from types import CodeType, FrameType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from kinetoscope.core.paths.source_files import is_profiler_code, is_user_code
from kinetoscope.recording.markers.recorder_types import PROFILER_CATEGORY
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.window.gc_control import pause_gc
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.held_functions import HOOKS, hooks_of, parts_of_partial, variables_around
from kinetoscope.sources.private_names import module_children, of_modules

MOST_OBJECTS = 20_000
MOST_NS = 10_000_000
"""After so many objects, and so much of the thread's own time, the walk ends."""

_MOST_FRAMES = 32
_MOST_STEPS = 12
_MOST_ELEMENTS = 512
_MOST_PLAIN = 10_000
_OWN_PACKAGE = __name__.partition(".")[0]
_OPEN_LIBRARIES = ("types", "argparse")
_CONTAINERS = (list, dict, deque, set, frozenset, tuple)
_NUM_OWN_REFERENCES = 3  # to a frame's dict of variables: the frame's, our variable, and the call that counts

_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__


class Step(NamedTuple):
    """One step from an object to what it holds: an attribute, an item (its key, if that is a plain one), or a variable
    of a function."""

    kind: str
    key: Any

    def __str__(self) -> str:
        return f".{self.key}" if self.kind == "attribute" else f"[{'...' if self.key is None else repr(self.key)}]"


class Scope(NamedTuple):
    """Where a path of steps, from number ``begin`` on, can be written in code: with variables of a function (``code``)
    or of a module (``names``, and ``code`` while it runs), or with the first parameter of the methods of a class
    (``owner``)."""

    begin: int
    code: CodeType | None = None
    names: dict[str, Any] | None = None
    owner: type | None = None


class Inside(NamedTuple):
    """What is directly inside of something: keys and values, the kind of the steps to these, and the path and scopes
    before them."""

    values: list[tuple[Any, Any]]
    step: str
    path: tuple[Step, ...]
    scopes: tuple[Scope, ...]


class Held(NamedTuple):
    """An object, its key where it was found, and what it is inside of."""

    value: Any
    kind: str
    key: Any
    inside: Inside

    @property
    def path(self) -> tuple[Step, ...]:
        """The steps that lead to it from a function or module."""
        return (*self.inside.path, Step(self.inside.step, self._plain_key))

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Where code can have these steps."""
        return self.inside.scopes

    @property
    def name(self) -> str:
        """The expression that leads there, as in code."""
        return _expression(self.path[self.scopes[0].begin :])

    @property
    def place(self) -> str:
        """Where it is held, in words."""
        first, last = self.scopes[0], self.scopes[-1]
        if last.owner is not None and self.path[last.begin].kind == "attribute":
            return f"attribute of a {last.owner.__name__}"
        if first.names is not None:
            return "global variable"
        return f"variable of {first.code.co_name}{self._hooked_to}" if first.code is not None else ""

    @property
    def _hooked_to(self) -> str:
        """Whose hook the function is that has the variable, if it is one."""
        path = self.path[: self.scopes[0].begin]
        hooks = next((place for place, step in enumerate(path) if step.key in HOOKS and place), None)
        return "" if hooks is None else f", a hook of {_expression(path[:hooks])}"

    @property
    def _plain_key(self) -> Any:
        return self.key if type(self.key) in (str, int) else None

    @property
    def identity(self) -> tuple[Any, ...]:
        """What tells it from others, and keeps nothing alive."""
        _, step, path, scopes = self.inside
        code = scopes[0].code
        return (None if code is None else code.co_qualname, path, step, self._plain_key)


def _expression(path: tuple[Step, ...]) -> str:
    return str(path[0].key) + "".join(map(str, path[1:]))


class _Class(NamedTuple):
    """What is the same for all objects of a class: what reads the dict of their attributes, whether they are modules of
    torch's, the attributes that are not looked at, and the containers that a class of the user's has itself, and shares
    between its objects."""

    descriptor: Any
    is_module: bool
    hidden: frozenset[str]
    shared: list[tuple[Any, Any]]


@contextmanager
def look(run: RunContext, frame: FrameType | None) -> Iterator["HeldObjects"]:
    """Looks at what the functions from a frame outwards hold; forgets it at the end of the `with` block, and notes the
    span, which shows what the look cost.

    A look makes so many small objects that Python would collect garbage because of them, so that waits meanwhile.
    """
    begin_ns = run.clock.monotonic_ns()
    with pause_gc():
        objects = HeldObjects(frame)
        yield objects
        objects.found.clear()
    end_ns, tid = run.clock.monotonic_ns(), get_native_id()
    run.add_event(SourceEvent("kinetoscope/look at memory", PROFILER_CATEGORY, begin_ns, end_ns, tid, {}))


class HeldObjects:
    """The containers, tensors and other objects that the functions from a frame outwards hold.

    ``found`` has them, the nearest first. ``is_complete`` is false if there are more. ``num_frames`` counts those
    functions that are the user's, and ``modules`` are theirs.
    """

    def __init__(self, frame: FrameType | None) -> None:
        self.is_complete: bool = True
        self.num_frames: int = 0
        self.found: list[Held] = []
        self.modules: list[Scope] = []
        self.kinds: Kinds = Kinds()
        self._classes: dict[type, _Class] = {}
        self._namespaces: set[int] = set()
        self._torch_module: Any = getattr(sys.modules.get("torch.nn"), "Module", None)
        self._find(self._variables_around(frame))

    def _find(self, variables: list[Inside]) -> None:
        kinds, found, seen = self.kinds, self.found, set[int]()
        for inside in chain(variables, self._inside_each()):
            for key, value in inside.values:
                if id(value) not in seen:
                    seen.add(id(value))
                    found.append(Held(value, kinds[type(value)], key, inside))

    def _inside_each(self) -> Iterator[Inside]:
        """What is inside of each object that was found, also of those that are found meanwhile, up to the limits."""
        until_ns = thread_time_ns() + MOST_NS
        for number, held in enumerate(self.found):
            if len(self.found) > MOST_OBJECTS or (not number % 32 and thread_time_ns() > until_ns):
                self.is_complete = False
                return
            if held.kind == "tensor":
                continue
            values = self._values_in(held)
            if len(held.inside.path) >= _MOST_STEPS - 1:
                self.is_complete = self.is_complete and not values
                continue
            if values:  # most have none
                yield _inside_of(held, values)
            if held.kind == "function":
                yield from self._around_function(held)

    def is_module(self, held: Held) -> bool:
        """Whether it is a module of torch's, of whatever class."""
        return held.kind == "object" and self._class_of(type(held.value)).is_module

    # -- where it begins

    def _variables_around(self, frame: FrameType | None) -> list[Inside]:
        """The variables of the functions from a frame outwards, and then those of their modules."""
        variables, modules = list[Inside](), dict[int, Scope]()
        while frame is not None and self.num_frames < _MOST_FRAMES:
            code = frame.f_code
            if is_user_code(code.co_filename):
                self.num_frames += 1
                names, is_function = frame.f_globals, code.co_flags & CO_OPTIMIZED
                if is_function:
                    variables.append(self._variables(_variables_of(frame), Scope(0, code=code)))
                if id(names) not in modules or not is_function:
                    modules[id(names)] = Scope(0, names=names, code=None if is_function else code)
            frame = frame.f_back
        self.is_complete = frame is None
        self.modules = list(modules.values())
        self._namespaces = set(modules)
        return variables + [self._variables(scope.names or {}, scope) for scope in self.modules]

    def _variables(self, names: dict[str, Any], scope: Scope) -> Inside:
        values = [(name, value) for name, value in self._visible(names) if name.isidentifier()]
        return Inside(values, "variable", (), (scope,))

    # -- what is inside of an object

    def _values_in(self, held: Held) -> list[tuple[Any, Any]]:
        value, kind = held.value, held.kind
        try:
            if kind == "object":
                return self._attributes(value)
            if kind == "function":
                return self._relevant(value.__dict__.items())
            if kind == "module":
                return self._names(value)
            if kind == "method":
                return self._relevant([("__self__", value.__self__)])
            if kind == "partial":
                return self._relevant(parts_of_partial(value))
            if length_of(value, kind) > _MOST_ELEMENTS and not self._are_plain(values_in(value, kind)):
                self.is_complete = False
            return self._relevant(islice(_READERS[kind](value), _MOST_ELEMENTS))
        except RuntimeError:  # another thread changed its size meanwhile
            self.is_complete = False
            return []

    def _relevant(self, values: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Those that something can be inside of: most values are numbers and texts."""
        kinds = self.kinds
        return [(key, value) for key, value in values if kinds[type(value)]]

    def _visible(self, names: dict[str, Any]) -> list[tuple[Any, Any]]:
        values = self._relevant(list(names.items()))
        return [(name, value) for name, value in values if type(name) is str and not name.startswith("__")]

    def _attributes(self, value: object) -> list[tuple[Any, Any]]:
        (descriptor, is_module, hidden, shared), kinds = self._class_of(type(value)), self.kinds
        attributes = _read_attributes(value, descriptor)
        own = [(name, inner) for name, inner in attributes.items() if name not in hidden and kinds[type(inner)]]
        if not is_module:
            return [*shared, *own]
        children = module_children.get(attributes)
        own += self._relevant(children.items()) if type(children) is dict else ()
        own += hooks_of(attributes)
        return [*shared, *own]

    def _class_of(self, owner: type) -> _Class:
        if owner not in self._classes:
            bases = _mro_of(owner)
            is_module = self._torch_module in bases
            hidden = _hidden_in(self._torch_module) if is_module else _hidden_state(owner)
            own = [base for base in bases if _is_class_of_user(base)]
            values = {name: value for base in own for name, value in list(_dict_of(base).items())}
            shared = [(name, value) for name, value in values.items() if self.kinds[type(value)] in _READERS]
            self._classes[owner] = _Class(_dict_descriptor(owner), is_module, hidden, shared)
        return self._classes[owner]

    def _around_function(self, held: Held) -> Iterator[Inside]:
        """The variables that a function keeps between its calls, and those of its module if it is the user's."""
        code, path = held.value.__code__, held.path
        if is_profiler_code(code.co_filename):
            return
        variables = self._relevant(variables_around(held.value))
        if variables:
            yield Inside(variables, "variable", path, (Scope(len(path), code=code),))
        names = held.value.__globals__
        if is_user_code(code.co_filename) and id(names) not in self._namespaces:
            self._namespaces.add(id(names))
            yield self._variables(names, Scope(len(path), names=names))._replace(path=path)

    def _names(self, module: ModuleType) -> list[tuple[Any, Any]]:
        names = module.__dict__
        file = names.get("__file__")
        if type(file) is not str or not is_user_code(file) or id(names) in self._namespaces:
            return []
        self._namespaces.add(id(names))
        return self._visible(names)

    def _are_plain(self, values: Iterator[Any]) -> bool:
        """Whether nothing can be inside of any of them, as far as that is quick to see."""
        classes = set(map(type, islice(values, _MOST_PLAIN)))
        is_all = next((False for _ in values), True)
        return is_all and not any(map(self.kinds.__getitem__, classes))


@cache
def _hidden_in(torch_module: Any) -> frozenset[str]:
    """What torch itself keeps in each of its modules."""
    attributes = torch_module().__dict__
    for attribute in of_modules:
        attribute.check(attributes)
    return frozenset(attributes)


def _hidden_state(owner: type) -> frozenset[str]:
    """What torch's own optimizers keep of each parameter, which has the same size after each step; not LBFGS's."""
    module = _dict_of(owner).get("__module__")
    is_own = type(module) is str and module.startswith("torch.optim.") and owner.__name__ != "LBFGS"
    return frozenset(("state",)) if is_own else frozenset()


def _inside_of(held: Held, values: list[tuple[Any, Any]]) -> Inside:
    value, kind, path, scopes = held.value, held.kind, held.path, held.scopes
    if kind in _READERS or kind == "method":
        return Inside(values, "attribute" if kind == "method" else "item", path, scopes)
    if kind in ("function", "partial"):
        return Inside(values, "attribute", path, scopes)
    scope = Scope(len(path), names=value.__dict__) if kind == "module" else Scope(len(path), owner=type(value))
    return Inside(values, "attribute", path, (*scopes[:1], scope))


class Kinds(dict[type, str]):
    """What kind of object those of a class are, by the class alone: the name of a container's class, ``tensor``,
    ``object`` for those with attributes, ``function``, ``method``, ``partial`` or ``module``; empty if nothing can be
    inside of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bases: list[tuple[type, str]] = [(base, base.__name__) for base in _CONTAINERS]
        self._bases += [(FunctionType, "function"), (MethodType, "method"), (ModuleType, "module")]
        self._bases += [(partial, "partial")]
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        if isinstance(tensor, type):
            self._bases.insert(0, (tensor, "tensor"))

    def __missing__(self, owner: type) -> str:
        self[owner] = kind = self._of_class(owner)
        return kind

    def _of_class(self, owner: type) -> str:
        bases = _mro_of(owner)
        for base, kind in self._bases:
            if base in bases:
                return kind
        module = _dict_of(owner).get("__module__")
        package = module.partition(".")[0] if type(module) is str else ""
        is_closed = package in sys.stdlib_module_names and package not in _OPEN_LIBRARIES
        if type in bases or is_closed or package == _OWN_PACKAGE:
            return ""
        return "object" if _dict_descriptor(owner) is not None else ""


def _is_class_of_user(owner: type) -> bool:
    """Whether a class is the user's, by the file of its module; a notebook has none."""
    module = _dict_of(owner).get("__module__")
    if type(module) is not str or owner is object:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return is_user_code(file) if type(file) is str else module == "__main__"


def own_attributes(value: Any) -> dict[str, Any]:
    """The attributes in the dict of an object, without calling anything of its class."""
    return _read_attributes(value, _dict_descriptor(type(value)))


def _read_attributes(value: object, descriptor: Any) -> dict[str, Any]:
    attributes = None if descriptor is None else descriptor.__get__(value)
    return attributes if type(attributes) is dict else {}


def values_in(value: Any, kind: str) -> Iterator[Any]:
    """What an object of that kind holds: the elements of a container, or the values of its attributes."""
    if kind == "object":
        yield from own_attributes(value).values()
    elif kind in _READERS:
        yield from (element for _, element in _READERS[kind](value))


def newest_in(value: Any, kind: str) -> Iterator[Any]:
    """The elements of a container, the last that were added first, as far as it has an order."""
    if kind == "dict":
        yield from (dict.__getitem__(value, key) for key in dict.__reversed__(value))
    elif kind in ("list", "tuple", "deque"):
        base = {"list": list, "tuple": tuple, "deque": deque}[kind]
        length = base.__len__(value)
        yield from (base.__getitem__(value, place) for place in range(length - 1, -1, -1))
    else:
        yield from values_in(value, kind)


def is_container(kind: str) -> bool:
    """Whether objects of that kind are containers."""
    return kind in _READERS


def length_of(value: Any, kind: str) -> int:
    """How many elements a container of that kind has."""
    return _LENGTHS[kind](value)


def codes_in(names: Any) -> Iterator[CodeType]:
    """The code of the functions among the values of a namespace, also beneath decorators."""
    for value in list(names.values()):
        found: Any = value.fget if type(value) is property else value
        for _ in range(_MOST_FRAMES):
            found = found.__func__ if type(found) is classmethod else found
            if type(found) is not FunctionType:
                break
            yield found.__code__
            found = found.__dict__.get("__wrapped__")


def codes_of_class(owner: type) -> list[CodeType]:
    """The code of the methods of a class, and of those it is made from, that the user wrote."""
    codes = [code for base in _mro_of(owner) for code in codes_in(_dict_of(base))]
    return [code for code in codes if is_user_code(code.co_filename)]


def classes_in(names: dict[str, Any]) -> list[type]:
    """The classes that a module defines."""
    module = names.get("__name__")
    found = [value for value in list(names.values()) if type(value) is type]
    return [owner for owner in found if _dict_of(owner).get("__module__") == module]


def _dict_descriptor(owner: type) -> Any:
    for base in _mro_of(owner):
        found = _dict_of(base).get("__dict__")
        if found is not None:
            return found if type(found) in (GetSetDescriptorType, MemberDescriptorType) else None
    return None


def _variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables of a function that runs.

    Until Python 3.12 the frame keeps the dict that it gives, and with it all values: they are taken out again, unless
    somebody else uses this dict as well.
    """
    known = frame.f_locals
    values = dict(known)
    if sys.version_info < (3, 13) and sys.getrefcount(known) <= _NUM_OWN_REFERENCES:
        code = frame.f_code
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            known.pop(name, None)
    return values


def _read_sequence(base: Any) -> Any:
    return lambda value: enumerate(base.__iter__(value))


def _read_set(base: Any) -> Any:
    return lambda value: zip(repeat(None), base.__iter__(value), strict=False)


_READERS: dict[str, Any] = {base.__name__: _read_sequence(base) for base in (list, tuple, deque)}
_READERS |= {base.__name__: _read_set(base) for base in (set, frozenset)} | {"dict": dict.items}
_LENGTHS: dict[str, Any] = {base.__name__: base.__len__ for base in _CONTAINERS}
