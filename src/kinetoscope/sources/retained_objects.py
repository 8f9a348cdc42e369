"""Scan of the objects that the functions around a training loop reference, with the path to each.

No user code runs: containers are read by the methods of Python's built-in classes, attributes from the object's dict.
Nothing is kept alive after the scan.
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
from kinetoscope.sources.captured_variables import HOOKS, captured_variables, find_hooks, partial_parts
from kinetoscope.sources.private_names import module_attributes, module_children

MAX_OBJECTS = 20_000
MAX_SCAN_NS = 10_000_000
"""Limits of a scan: number of objects, and CPU time of the thread."""

_MAX_FRAMES = 32
_MAX_PATH_STEPS = 12
_MAX_ELEMENTS = 512
_MAX_PLAIN_ELEMENTS = 10_000
_PACKAGE = __name__.partition(".")[0]
_SCANNED_STDLIB = ("types", "argparse")
_CONTAINERS = (list, dict, deque, set, frozenset, tuple)
_NUM_INTERNAL_REFERENCES = 3  # to a frame's dict of variables: by the frame, by `known`, and by the call that counts

_get_mro = type.__dict__["__mro__"].__get__
_get_dict = type.__dict__["__dict__"].__get__


class Step(NamedTuple):
    """One step of a path: an attribute, an item (``key`` is None unless it is a string or an int) or a variable."""

    kind: str
    key: Any

    def __str__(self) -> str:
        return f".{self.key}" if self.kind == "attribute" else f"[{'...' if self.key is None else repr(self.key)}]"


class Scope(NamedTuple):
    """Code in which a path, from step number ``begin`` on, can be written.

    It is a function (``code``), a module (``names``, and ``code`` while it runs) or the methods of a class (``owner``),
    where the path follows the first parameter.
    """

    begin: int
    code: CodeType | None = None
    names: dict[str, Any] | None = None
    owner: type | None = None


class Members(NamedTuple):
    """Members of one object: keys and values, the kind of the steps to them, and the path and scopes of the object."""

    values: list[tuple[Any, Any]]
    step: str
    path: tuple[Step, ...]
    scopes: tuple[Scope, ...]


class RetainedObject(NamedTuple):
    """An object, its kind (see `ObjectKinds`), its key, and the members that it was found among."""

    value: Any
    kind: str
    key: Any
    members: Members

    @property
    def path(self) -> tuple[Step, ...]:
        """Steps from a function or module to the object."""
        return (*self.members.path, Step(self.members.step, self._plain_key))

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Code in which these steps can be written."""
        return self.members.scopes

    @property
    def name(self) -> str:
        """Expression that leads to the object, as in source code."""
        return _format_path(self.path[self.scopes[0].begin :])

    @property
    def location(self) -> str:
        """Description of the owner: "global variable", "variable of train", "attribute of a Trainer"."""
        first, last = self.scopes[0], self.scopes[-1]
        if last.owner is not None and self.path[last.begin].kind == "attribute":
            return f"attribute of a {last.owner.__name__}"
        if first.names is not None:
            return "global variable"
        return f"variable of {first.code.co_name}{self._hooked_to}" if first.code is not None else ""

    @property
    def _hooked_to(self) -> str:
        """Suffix that names the module or parameter whose hook has the variable; "" if it is no hook."""
        path = self.path[: self.scopes[0].begin]
        hooks = next((location for location, step in enumerate(path) if step.key in HOOKS and location), None)
        return "" if hooks is None else f", a hook of {_format_path(path[:hooks])}"

    @property
    def _plain_key(self) -> Any:
        """The key if it is a string or an int, else None."""
        return self.key if type(self.key) in (str, int) else None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Key that distinguishes the object from others and keeps nothing alive."""
        _, step, path, scopes = self.members
        code = scopes[0].code
        return (None if code is None else code.co_qualname, path, step, self._plain_key)


def _format_path(path: tuple[Step, ...]) -> str:
    return str(path[0].key) + "".join(map(str, path[1:]))


class _ClassInfo(NamedTuple):
    """Properties shared by all objects of a class.

    Attributes:
        descriptor: Reads the dict of an object's attributes.
        is_module: Whether the objects are torch modules.
        hidden: Attributes that are not scanned.
        shared: Containers that a user's class itself has.
    """

    descriptor: Any
    is_module: bool
    hidden: frozenset[str]
    shared: list[tuple[Any, Any]]


@contextmanager
def scan_objects(run: RunContext, frame: FrameType | None) -> Iterator["ObjectScan"]:
    """Scan the objects that the functions from ``frame`` outwards reference, within a ``with`` block.

    A span of Kinetoscope's category shows the cost. A scan allocates so many small objects that it would trigger
    garbage collections, so these are paused meanwhile.
    """
    begin_ns = run.clock.monotonic_ns()
    with pause_gc():
        scan = ObjectScan(frame)
        yield scan
        scan.objects.clear()
    end_ns, tid = run.clock.monotonic_ns(), get_native_id()
    run.add_event(SourceEvent("kinetoscope/scan live tensors", PROFILER_CATEGORY, begin_ns, end_ns, tid, {}))


class ObjectScan:
    """The containers, tensors and other objects that the functions from a frame outwards reference, nearest first.

    Attributes:
        is_complete: False if a limit ended the scan.
        num_frames: Number of functions of user code among the frames.
        objects: The objects found.
        modules: Scopes of these functions' modules.
    """

    def __init__(self, frame: FrameType | None) -> None:
        self.is_complete: bool = True
        self.num_frames: int = 0
        self.objects: list[RetainedObject] = []
        self.modules: list[Scope] = []
        self.kinds: ObjectKinds = ObjectKinds()
        self._classes: dict[type, _ClassInfo] = {}
        self._namespaces: set[int] = set()
        self._torch_module: Any = getattr(sys.modules.get("torch.nn"), "Module", None)
        self._find(self._find_variables(frame))

    def _find(self, variables: list[Members]) -> None:
        """Collect all objects below these variables, breadth first."""
        kinds, objects, seen = self.kinds, self.objects, set[int]()
        for members in chain(variables, self._iterate_members()):
            for key, value in members.values:
                if id(value) not in seen:
                    seen.add(id(value))
                    objects.append(RetainedObject(value, kinds[type(value)], key, members))

    def _iterate_members(self) -> Iterator[Members]:
        """Yield the members of each object, also of those found meanwhile, up to the limits."""
        deadline_ns = thread_time_ns() + MAX_SCAN_NS
        for number, retained in enumerate(self.objects):
            if len(self.objects) > MAX_OBJECTS or (not number % 32 and thread_time_ns() > deadline_ns):
                self.is_complete = False
                return
            if retained.kind == "tensor":
                continue
            values = self._read_members(retained)
            if len(retained.members.path) >= _MAX_PATH_STEPS - 1:
                self.is_complete = self.is_complete and not values
                continue
            if values:  # most objects have none
                yield _make_members(retained, values)
            if retained.kind == "function":
                yield from self._read_captured(retained)

    def is_module(self, retained: RetainedObject) -> bool:
        """Return whether an object is a torch module, of any class."""
        return retained.kind == "object" and self._class_info(type(retained.value)).is_module

    # -- roots of the scan

    def _find_variables(self, frame: FrameType | None) -> list[Members]:
        """Return the variables of the functions from ``frame`` outwards, followed by those of their modules."""
        variables, modules = list[Members](), dict[int, Scope]()
        while frame is not None and self.num_frames < _MAX_FRAMES:
            code = frame.f_code
            if is_user_code(code.co_filename):
                self.num_frames += 1
                names, is_function = frame.f_globals, code.co_flags & CO_OPTIMIZED
                if is_function:
                    variables.append(self._make_variables(_read_locals(frame), Scope(0, code=code)))
                if id(names) not in modules or not is_function:
                    modules[id(names)] = Scope(0, names=names, code=None if is_function else code)
            frame = frame.f_back
        self.is_complete = frame is None
        self.modules = list(modules.values())
        self._namespaces = set(modules)
        return variables + [self._make_variables(scope.names or {}, scope) for scope in self.modules]

    def _make_variables(self, names: dict[str, Any], scope: Scope) -> Members:
        values = [(name, value) for name, value in self._read_namespace(names) if name.isidentifier()]
        return Members(values, "variable", (), (scope,))

    # -- members of an object

    def _read_members(self, retained: RetainedObject) -> list[tuple[Any, Any]]:
        """Return the keys and values inside an object, by its kind."""
        value, kind = retained.value, retained.kind
        try:
            if kind == "object":
                return self._read_object(value)
            if kind == "function":
                return self._keep_scannable(value.__dict__.items())
            if kind == "module":
                return self._read_module(value)
            if kind == "method":
                return self._keep_scannable([("__self__", value.__self__)])
            if kind == "partial":
                return self._keep_scannable(partial_parts(value))
            if container_length(value, kind) > _MAX_ELEMENTS and not self._are_plain(iterate_values(value, kind)):
                self.is_complete = False
            return self._keep_scannable(islice(_READERS[kind](value), _MAX_ELEMENTS))
        except RuntimeError:  # another thread changed its size meanwhile
            self.is_complete = False
            return []

    def _keep_scannable(self, values: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return the items that can have members; most values are numbers and strings."""
        kinds = self.kinds
        return [(key, value) for key, value in values if kinds[type(value)]]

    def _read_namespace(self, names: dict[str, Any]) -> list[tuple[Any, Any]]:
        """Return the scannable names of a namespace, without dunder names."""
        values = self._keep_scannable(list(names.items()))
        return [(name, value) for name, value in values if type(name) is str and not name.startswith("__")]

    def _read_object(self, value: object) -> list[tuple[Any, Any]]:
        """Return the attributes of an object, and for a torch module its children and hooks."""
        (descriptor, is_module, hidden, shared), kinds = self._class_info(type(value)), self.kinds
        attributes = _read_attributes(value, descriptor)
        instance_values = [
            (name, inner) for name, inner in attributes.items() if name not in hidden and kinds[type(inner)]
        ]
        if not is_module:
            return [*shared, *instance_values]
        children = module_children.get(attributes)
        instance_values += self._keep_scannable(children.items()) if type(children) is dict else ()
        instance_values += find_hooks(attributes)
        return [*shared, *instance_values]

    def _class_info(self, owner: type) -> _ClassInfo:
        """Return the cached properties of a class."""
        if owner not in self._classes:
            bases = _get_mro(owner)
            is_module = self._torch_module in bases
            hidden = _module_internals(self._torch_module) if is_module else _optimizer_internals(owner)
            instance_values = [base for base in bases if _is_user_class(base)]
            values = {name: value for base in instance_values for name, value in list(_get_dict(base).items())}
            shared = [(name, value) for name, value in values.items() if self.kinds[type(value)] in _READERS]
            self._classes[owner] = _ClassInfo(_dict_descriptor(owner), is_module, hidden, shared)
        return self._classes[owner]

    def _read_captured(self, retained: RetainedObject) -> Iterator[Members]:
        """Yield the variables that a function retains, and those of its module if it is user code."""
        code, path = retained.value.__code__, retained.path
        if is_profiler_code(code.co_filename):
            return
        variables = self._keep_scannable(captured_variables(retained.value))
        if variables:
            yield Members(variables, "variable", path, (Scope(len(path), code=code),))
        names = retained.value.__globals__
        if is_user_code(code.co_filename) and id(names) not in self._namespaces:
            self._namespaces.add(id(names))
            yield self._make_variables(names, Scope(len(path), names=names))._replace(path=path)

    def _read_module(self, module: ModuleType) -> list[tuple[Any, Any]]:
        """Return the names of a module of user code, once per scan."""
        names = module.__dict__
        file = names.get("__file__")
        if type(file) is not str or not is_user_code(file) or id(names) in self._namespaces:
            return []
        self._namespaces.add(id(names))
        return self._read_namespace(names)

    def _are_plain(self, values: Iterator[Any]) -> bool:
        """Return whether no value can have members, as far as the first `_MAX_PLAIN_ELEMENTS` show."""
        classes = set(map(type, islice(values, _MAX_PLAIN_ELEMENTS)))
        is_all = next((False for _ in values), True)
        return is_all and not any(map(self.kinds.__getitem__, classes))


@cache
def _module_internals(torch_module: Any) -> frozenset[str]:
    """Return the attributes that torch itself gives each module."""
    attributes = torch_module().__dict__
    for attribute in module_attributes:
        attribute.check(attributes)
    return frozenset(attributes)


def _optimizer_internals(owner: type) -> frozenset[str]:
    """Return the attributes of torch's optimizers with per-parameter state, whose size is constant; not LBFGS's."""
    module = _get_dict(owner).get("__module__")
    is_torchs = type(module) is str and module.startswith("torch.optim.") and owner.__name__ != "LBFGS"
    return frozenset(("state",)) if is_torchs else frozenset()


def _make_members(retained: RetainedObject, values: list[tuple[Any, Any]]) -> Members:
    """Return the members of an object, with the path and scopes in which they are written."""
    value, kind, path, scopes = retained.value, retained.kind, retained.path, retained.scopes
    if kind in _READERS or kind == "method":
        return Members(values, "attribute" if kind == "method" else "item", path, scopes)
    if kind in ("function", "partial"):
        return Members(values, "attribute", path, scopes)
    scope = Scope(len(path), names=value.__dict__) if kind == "module" else Scope(len(path), owner=type(value))
    return Members(values, "attribute", path, (*scopes[:1], scope))


class ObjectKinds(dict[type, str]):
    """Kind of the objects of each class.

    It is the name of a built-in container class, ``tensor``, ``object`` (with attributes), ``function``, ``method``,
    ``partial``, ``module``, or empty if the objects have no members.
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
        self[owner] = kind = self._classify(owner)
        return kind

    def _classify(self, owner: type) -> str:
        bases = _get_mro(owner)
        for base, kind in self._bases:
            if base in bases:
                return kind
        module = _get_dict(owner).get("__module__")
        package = module.partition(".")[0] if type(module) is str else ""
        is_closed = package in sys.stdlib_module_names and package not in _SCANNED_STDLIB
        if type in bases or is_closed or package == _PACKAGE:
            return ""
        return "object" if _dict_descriptor(owner) is not None else ""


def _is_user_class(owner: type) -> bool:
    """Return whether a class is user code, by the file of its module; a notebook has none."""
    module = _get_dict(owner).get("__module__")
    if type(module) is not str or owner is object:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return is_user_code(file) if type(file) is str else module == "__main__"


def read_instance_dict(value: Any) -> dict[str, Any]:
    """Return the attributes in an object's dict, without calling anything of its class."""
    return _read_attributes(value, _dict_descriptor(type(value)))


def _read_attributes(value: object, descriptor: Any) -> dict[str, Any]:
    attributes = None if descriptor is None else descriptor.__get__(value)
    return attributes if type(attributes) is dict else {}


def iterate_values(value: Any, kind: str) -> Iterator[Any]:
    """Yield the elements of a container, or the attribute values of an object."""
    if kind == "object":
        yield from read_instance_dict(value).values()
    elif kind in _READERS:
        yield from (element for _, element in _READERS[kind](value))


def iterate_newest(value: Any, kind: str) -> Iterator[Any]:
    """Yield the elements of a container, newest first as far as it has an order."""
    if kind == "dict":
        yield from (dict.__getitem__(value, key) for key in dict.__reversed__(value))
    elif kind in ("list", "tuple", "deque"):
        base = {"list": list, "tuple": tuple, "deque": deque}[kind]
        length = base.__len__(value)
        yield from (base.__getitem__(value, location) for location in range(length - 1, -1, -1))
    else:
        yield from iterate_values(value, kind)


def is_container(kind: str) -> bool:
    """Return whether objects of this kind are containers."""
    return kind in _READERS


def container_length(value: Any, kind: str) -> int:
    """Return the number of elements of a container."""
    return _LENGTHS[kind](value)


def function_codes(names: Any) -> Iterator[CodeType]:
    """Yield the code of the functions in a namespace, including those below decorators."""
    for value in list(names.values()):
        function: Any = value.fget if type(value) is property else value
        for _ in range(_MAX_FRAMES):
            function = function.__func__ if type(function) is classmethod else function
            if type(function) is not FunctionType:
                break
            yield function.__code__
            function = function.__dict__.get("__wrapped__")


def method_codes(owner: type) -> list[CodeType]:
    """Return the code of the methods of a class and its bases, as far as it is user code."""
    codes = [code for base in _get_mro(owner) for code in function_codes(_get_dict(base))]
    return [code for code in codes if is_user_code(code.co_filename)]


def defined_classes(names: dict[str, Any]) -> list[type]:
    """Return the classes that a module defines."""
    module = names.get("__name__")
    found = [value for value in list(names.values()) if type(value) is type]
    return [owner for owner in found if _get_dict(owner).get("__module__") == module]


def _dict_descriptor(owner: type) -> Any:
    """Return the descriptor that reads the dict of a class's objects; None if they have none."""
    for base in _get_mro(owner):
        found = _get_dict(base).get("__dict__")
        if found is not None:
            return found if type(found) in (GetSetDescriptorType, MemberDescriptorType) else None
    return None


def _read_locals(frame: FrameType) -> dict[str, Any]:
    """Return the variables of a running function.

    Before Python 3.13 a frame keeps the dict of `f_locals`, and with it all values. They are removed from it, unless
    the dict has another user.
    """
    known = frame.f_locals
    values = dict(known)
    if sys.version_info < (3, 13) and sys.getrefcount(known) <= _NUM_INTERNAL_REFERENCES:
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
