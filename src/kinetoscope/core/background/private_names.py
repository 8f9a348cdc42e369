"""What a name is that another library does not promise to keep; and CPython's, for our own threads.

The rooms that use such names list theirs in a file of this name: `recording`, `sources`, and `torch` in its own way.
"""

import ctypes
import importlib
import logging
import operator
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any

_log = logging.getLogger("kinetoscope")
_PYTHON = f"{platform.python_implementation()} {platform.python_version()}"

names: "list[PrivateName]" = []
"""All of these names in the files that are imported."""


class PrivateName:
    """A name of another library that it does not promise to keep.

    Where it is missing, its feature is off, and one line in the log says so: ``lost`` is the end of that sentence.
    """

    def __init__(self, module: str, name: str, consequence: str) -> None:
        self.module, self.name, self._consequence = module, name, consequence
        self.attribute = name.rpartition(".")[2]
        """The last part of the name."""
        self._is_logged = False
        names.append(self)

    def warn_missing(self, reason: str = "") -> None:
        """Logs what is lost, and why, unless that was done before."""
        if not self._is_logged:
            self._is_logged = True
            _log.warning("%s, so %s.", reason or f"{self._library()} does not have {self}", self._consequence)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def _library(self) -> str:
        package = self.module.partition(".")[0]
        if package in sys.stdlib_module_names:
            return _PYTHON
        return f"{package} {getattr(sys.modules.get(package), '__version__', '')}".rstrip()


class PrivateObject(PrivateName):
    """What such a name of a module stands for. It is looked up once, when the library is ``loaded``: when that module
    is, by default the module itself."""

    def __init__(self, module: str, name: str, consequence: str, loaded: str | None = None) -> None:
        super().__init__(module, name, consequence)
        self._loaded = loaded or module
        self._is_resolved = False
        self._object: Any = None

    def find(self) -> Any:
        """What it stands for. None if it is missing, and as long as the library is not loaded."""
        if not self._is_resolved and self._loaded in sys.modules:
            self._object = self._resolve()
            self._is_resolved = True
        return self._object

    def _resolve(self) -> Any:
        try:  # the library has imported this module, unless it does not have it any more
            return operator.attrgetter(self.name)(importlib.import_module(self.module))
        except (ImportError, AttributeError):
            self.warn_missing()
            return None


class PrivateAttribute(PrivateName):
    """An attribute of the objects of a class, which has the ``name`` after the class's. It may be an entry of their
    ``__dict__`` only, so that it can be looked for in an object, but not in the class."""

    def check(self, attributes: Mapping[str, Any]) -> None:
        """Tells if it is missing among the attributes of such an object."""
        if self.attribute not in attributes:
            self.warn_missing()

    def belongs_to(self, kind: type) -> bool:
        """Whether objects of this class have it: whether it is the name's class or one of those under it."""
        owner = self.name.rpartition(".")[0]
        return any((base.__module__, base.__name__) == (self.module, owner) for base in kind.__mro__)

    def get(self, attributes: Mapping[str, Any]) -> Any:
        """Its value among the attributes of any object; None if it is missing."""
        return attributes.get(self.attribute)


def find_all(*wanted: PrivateObject) -> list[Any] | None:
    """What all of these stand for. None if one is missing; then the first of these is told."""
    found = list[Any]()
    for name in wanted:
        if name.find() is None:
            return None
        found.append(name.find())
    return found


# -- CPython

_TESTED_VERSIONS = ((3, 11), (3, 12), (3, 13), (3, 14), (3, 15))
"""The versions of CPython with which `_PyEval_SetProfile` was tried; in others, a call could crash."""

_set_profile = PrivateObject(
    "ctypes", "pythonapi._PyEval_SetProfile", "traces with stacks also have frames of Kinetoscope's own threads"
)


def find_set_profile() -> Callable[[int, None, None], object] | None:
    """The function that `sys.setprofile` and torch call to set the profile function of a thread, which is given by the
    address of its interpreter state. None where it is missing or was not tried.

    CPython exports it for its own extension modules, and may change it in any version.
    """
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in _TESTED_VERSIONS:
        _set_profile.warn_missing(f"{_set_profile} was not tried with {_PYTHON}")
        return None
    function = _set_profile.find()
    if function is not None:
        function.argtypes = [ctypes.c_void_p] * 3
    return function
