"""What the functions around a training loop hold: their variables, and what is below them, with the names that lead
there.

No code of the user's is called: containers are read by the methods of Python's own classes, attributes from the dict of
their object. Nothing is kept alive once the walk is over.
"""

import sys
from collections import deque
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from itertools import islice
from time import thread_time_ns
from types import CodeType, FrameType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from kinetoscope.training.source_files import is_of_user

MOST_OBJECTS = 20_000
MOST_NS = 20_000_000
"""After so many objects, and so much of the thread's own time, the walk ends."""

_MOST_FRAMES = 32
_MOST_STEPS = 12
_MOST_ELEMENTS = 512
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


class Held(NamedTuple):
    """An object, the steps that lead to it from a function or module, and where code can have these."""

    value: Any
    kind: str
    path: tuple[Step, ...]
    scopes: tuple[Scope, ...]

    @property
    def name(self) -> str:
        """The expression that leads there, as in code."""
        variable, *steps = self.path
        return str(variable.key) + "".join(map(str, steps))

    @property
    def place(self) -> str:
        """Where it is held, in words."""
        first, last = self.scopes[0], self.scopes[-1]
        if last.owner is not None and self.path[last.begin].kind == "attribute":
            return f"attribute of a {last.owner.__name__}"
        if first.names is not None:
            return "global variable"
        return f"variable of {first.code.co_name}" if first.code is not None else ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from others, and keeps nothing alive."""
        first = self.scopes[0]
        return (None if first.code is None else first.code.co_qualname, self.path)


class HeldObjects:
    """The containers, tensors and other objects that the functions from a frame outwards hold, the nearest first.

    ``is_complete`` is false once it had to end before it has seen everything. ``num_frames`` counts functions of the
    user's.
    """

    def __init__(self, frame: FrameType | None) -> None:
        self.is_complete = True
        self.num_frames = self.num_objects = 0
        self.kinds = Kinds()
        self._shared: dict[type, dict[str, Any]] = {}
        self._waiting: deque[Held] = deque()
        self._seen: set[int] = set()
        self._module: Any = getattr(sys.modules.get("torch.nn"), "Module", None)
        self._hidden = frozenset() if self._module is None else frozenset(self._module().__dict__) - {"_modules"}
        self.modules: list[Scope] = []
        """The modules of these functions."""
        self._add_frames(frame)

    def __iter__(self) -> Iterator[Held]:
        until_ns = thread_time_ns() + MOST_NS
        while self._waiting:
            held = self._waiting.popleft()
            if id(held.value) in self._seen:
                continue
            self._seen.add(id(held.value))
            self.num_objects += 1
            if self.num_objects > MOST_OBJECTS or (not self.num_objects % 128 and thread_time_ns() > until_ns):
                self.is_complete = False
                return
            yield held
            try:
                self._add_inside(held)
            except RuntimeError:  # another thread changed its size meanwhile
                self.is_complete = False

    def is_module(self, held: Held) -> bool:
        """Whether it is a module of torch's, of whatever class."""
        return self._module is not None and self._module in _mro_of(type(held.value))

    # -- where it begins

    def _add_frames(self, frame: FrameType | None) -> None:
        modules: dict[int, Scope] = {}
        while frame is not None and self.num_frames < _MOST_FRAMES:
            code = frame.f_code
            if is_of_user(code.co_filename):
                self.num_frames += 1
                names, is_function = frame.f_globals, code.co_flags & CO_OPTIMIZED
                if is_function:
                    self._add_variables(_variables_of(frame), Scope(0, code=code))
                if id(names) not in modules or not is_function:
                    modules[id(names)] = Scope(0, names=names, code=None if is_function else code)
            frame = frame.f_back
        self.modules = list(modules.values())
        for scope in self.modules:
            self._add_variables(scope.names or {}, scope)

    def _add_variables(self, variables: dict[str, Any], scope: Scope) -> None:
        for name, value in list(variables.items()):
            if type(name) is str and name.isidentifier() and not name.startswith("__"):
                self._add(value, (), "variable", name, (scope,))

    # -- what is inside of an object

    def _add(self, value: Any, path: tuple[Step, ...], step: str, key: Any, scopes: tuple[Scope, ...]) -> None:
        kind = self.kinds(value)
        if kind is not None and len(path) < _MOST_STEPS:  # most values are numbers and texts
            self._waiting.append(Held(value, kind, (*path, Step(step, key)), scopes))

    def _add_inside(self, held: Held) -> None:
        if held.kind in _READERS:
            for key, value in islice(_READERS[held.kind](held.value), _MOST_ELEMENTS):
                self._add(value, held.path, "item", key, held.scopes)
        elif held.kind == "object":
            self._add_attributes(held)
        elif held.kind == "function":
            self._add_closure(held)
        elif held.kind == "method":
            self._add(held.value.__self__, held.path, "attribute", "__self__", held.scopes)
        elif held.kind == "module":
            self._add_module(held)

    def _add_attributes(self, held: Held) -> None:
        owner = type(held.value)
        scopes = (*held.scopes[:1], Scope(len(held.path), owner=owner))
        self._add_each(held.path, self._containers_of(owner), scopes)
        attributes = own_attributes(held.value) or {}
        if self.is_module(held):
            attributes = {name: value for name, value in list(attributes.items()) if name not in self._hidden}
            children = attributes.pop("_modules", None)
            if type(children) is dict:
                attributes |= children
        self._add_each(held.path, attributes, scopes)

    def _containers_of(self, owner: type) -> dict[str, Any]:
        """The containers that a class of the user's has itself, and shares between its objects."""
        if owner not in self._shared:
            own = [base for base in _mro_of(owner) if _is_class_of_user(base)]
            values = [(name, value) for base in own for name, value in list(_dict_of(base).items())]
            self._shared[owner] = {name: value for name, value in values if self.kinds(value) in _READERS}
        return self._shared[owner]

    def _add_each(self, path: tuple[Step, ...], values: dict[str, Any], scopes: tuple[Scope, ...]) -> None:
        for name, value in list(values.items()):
            self._add(value, path, "attribute", name, scopes)

    def _add_closure(self, held: Held) -> None:
        code = held.value.__code__
        if not is_of_user(code.co_filename):
            return
        scopes = (*held.scopes[:1], Scope(len(held.path), code=code))
        for name, cell in zip(code.co_freevars, held.value.__closure__ or (), strict=True):
            try:
                self._add(cell.cell_contents, held.path, "variable", name, scopes)
            except ValueError:  # it has no value yet
                continue

    def _add_module(self, held: Held) -> None:
        names = held.value.__dict__
        file = names.get("__file__")
        if type(file) is str and is_of_user(file):
            visible = {name: value for name, value in list(names.items()) if not name.startswith("__")}
            self._add_each(held.path, visible, (*held.scopes[:1], Scope(len(held.path), names=names)))


class Kinds:
    """What kind of object those of a class are, by the class alone: the name of a container's class, ``tensor``,
    ``object`` for those with attributes, ``function``, ``method`` or ``module``. Classes are remembered by this object.
    """

    def __init__(self) -> None:
        self._known: dict[type, str | None] = {}
        self._bases: list[tuple[type, str]] = [(base, base.__name__) for base in _CONTAINERS]
        self._bases += [(FunctionType, "function"), (MethodType, "method"), (ModuleType, "module")]
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        if isinstance(tensor, type):
            self._bases.insert(0, (tensor, "tensor"))

    def __call__(self, value: object) -> str | None:
        """The kind of an object; None if nothing can be below it."""
        owner = type(value)
        if owner not in self._known:
            self._known[owner] = self._of_class(owner)
        return self._known[owner]

    def _of_class(self, owner: type) -> str | None:
        bases = _mro_of(owner)
        for base, kind in self._bases:
            if base in bases:
                return kind
        module = _dict_of(owner).get("__module__")
        package = module.partition(".")[0] if type(module) is str else ""
        is_closed = package in sys.stdlib_module_names and package not in _OPEN_LIBRARIES
        if type in bases or is_closed or package == _OWN_PACKAGE:
            return None
        return "object" if _dict_descriptor(owner) is not None else None


def _is_class_of_user(owner: type) -> bool:
    """Whether a class is the user's, by the file of its module; a notebook has none."""
    module = _dict_of(owner).get("__module__")
    if type(module) is not str or owner is object:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return is_of_user(file) if type(file) is str else module == "__main__"


def own_attributes(value: Any) -> dict[str, Any] | None:
    """The attributes in the dict of an object, without calling anything of its class."""
    descriptor = _dict_descriptor(type(value))
    attributes = None if descriptor is None else descriptor.__get__(value)
    return attributes if type(attributes) is dict else None


def values_in(value: Any, kind: str) -> Iterator[Any]:
    """What an object of that kind holds: the elements of a container, or the values of its attributes."""
    if kind == "object":
        yield from (own_attributes(value) or {}).values()
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
    return [code for code in codes if is_of_user(code.co_filename)]


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
    return lambda value: ((None, element) for element in base.__iter__(value))


def _read_dict(value: Any) -> Iterator[tuple[Any, Any]]:
    return ((key if type(key) in (str, int) else None, element) for key, element in dict.items(value))


_READERS: dict[str, Any] = {base.__name__: _read_sequence(base) for base in (list, tuple, deque)}
_READERS |= {base.__name__: _read_set(base) for base in (set, frozenset)} | {"dict": _read_dict}
_LENGTHS: dict[str, Any] = {base.__name__: base.__len__ for base in _CONTAINERS}
