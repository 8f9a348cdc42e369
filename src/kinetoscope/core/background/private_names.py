"""Private names of other libraries, and the one of CPython that background threads need.

The packages that use such names list theirs in a file of this name: `recording`, `sources`, and `torch`.
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
    """A name of another library that may disappear in any version.

    Where it is missing, its feature is off, and one line in the log reports it; ``consequence`` is the end of that
    line.
    """

    def __init__(self, module: str, name: str, consequence: str) -> None:
        self.module, self.name, self._consequence = module, name, consequence
        self.attribute = name.rpartition(".")[2]
        """The last part of the name."""
        self._is_logged = False
        names.append(self)

    def warn_missing(self, reason: str = "") -> None:
        """Log the consequence once, with the reason."""
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
    """A private name of a module, resolved once.

    Args:
        module: the module that defines the name.
        name: the dotted name in that module.
        consequence: the end of the line that is logged if the name is missing.
        loaded: the module whose import shows that the library is in use; by default ``module``.
    """

    def __init__(self, module: str, name: str, consequence: str, loaded: str | None = None) -> None:
        super().__init__(module, name, consequence)
        self._loaded = loaded or module
        self._is_resolved = False
        self._object: Any = None

    def find(self) -> Any:
        """Return the object, or None if it is missing or its library is not loaded yet."""
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
    """A private attribute of a class's instances, whose ``name`` follows the class's.

    It may be an entry of their ``__dict__`` only, so that it can be looked up in an object, but not in the class.
    """

    def check(self, attributes: Mapping[str, Any]) -> None:
        """Log the consequence if the attribute is missing in an object's ``attributes``."""
        if self.attribute not in attributes:
            self.warn_missing()

    def belongs_to(self, kind: type) -> bool:
        """Return whether objects of class ``kind`` have the attribute, also by inheritance."""
        owner = self.name.rpartition(".")[0]
        return any((base.__module__, base.__name__) == (self.module, owner) for base in kind.__mro__)

    def get(self, attributes: Mapping[str, Any]) -> Any:
        """Return the value in any object's ``attributes``; None if it is missing."""
        return attributes.get(self.attribute)


def find_all(*wanted: PrivateObject) -> list[Any] | None:
    """Return the objects of all names, or None if one is missing, which is logged."""
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
    """Return CPython's function that sets a thread's profile function, by its interpreter state.

    CPython exports it for its own extension modules, and may change it in any version. None where it is missing or was
    not tested.
    """
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in _TESTED_VERSIONS:
        _set_profile.warn_missing(f"{_set_profile} was not tried with {_PYTHON}")
        return None
    function = _set_profile.find()
    if function is not None:
        function.argtypes = [ctypes.c_void_p] * 3
    return function
