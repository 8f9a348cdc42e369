"""Registry of variants: one module per variant in the package `fixes`, registered by a decorator."""

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kinetoscope.errors import SettingsError
from kinetoscope.variants.facts import Facts

ENTRY_POINTS = __name__.rpartition(".")[0]
"""The group ``kinetoscope.variants``."""

_FIXES = "kinetoscope.variants.fixes"
Value = bool | int | float | str
Applied = Callable[[], object]
"""A variant calls it when it changes something in the program: one that never does is not measured."""


@dataclass(frozen=True)
class Variant:
    """A change that can be applied from outside. ``apply`` runs in the training process once torch is imported.

    ``find_values`` returns the values worth trying in a program, the most promising first. ``kinds`` are the kinds
    of findings that it may fix. ``code`` is the change to write, with ``{value}`` and ``{optimizer}`` filled in.
    With ``on_request`` it is tried only if it is named, since it changes results or is valid for some programs
    only. ``keeps_results`` is False where parameters may not stay bitwise equal. ``excludes`` has for values the names
    of variants that they cannot be combined with. ``valid_values`` are those that ``--fix`` may name, a range or a
    tuple; None for all.
    """

    name: str
    apply: Callable[[Value, Applied], object]
    find_values: Callable[[Facts], Iterable[Value]]
    code: str
    kinds: tuple[str, ...] = ()
    on_request: bool = False
    keeps_results: bool = True
    excludes: Mapping[Value, Sequence[str]] = field(default_factory=dict[Value, Sequence[str]])
    valid_values: Sequence[Value] | None = None

    def describe_code(self, value: Value | None, facts: Facts) -> str:
        """Return the code that makes a value permanent; None stands for the first of a few, or any number."""
        if value is None:
            value = self.valid_values[0] if isinstance(self.valid_values, tuple) else "VALUE"
        optimizer = facts.optimizers[0].name if facts.optimizers else "AdamW"
        return self.code.replace("{optimizer}", optimizer).replace("{value}", str(value))  # other braces are code

    def parse_value(self, text: str) -> Value:
        """Return the value in a text such as ``4`` or ``True``. Raises `SettingsError` for one that is not valid."""
        value, valid = _parse_value(text), self.valid_values
        if valid is None:
            return value
        if value not in valid:
            names = f"{valid[0]} to {valid[-1]}" if isinstance(valid, range) else " or ".join(map(str, valid))
            raise SettingsError(f"--fix: {self.name} cannot be {text!r}. Its values: {names}.")
        return valid[valid.index(value)]  # True for 1


def _parse_value(text: str) -> Value:
    known: dict[str, Value] = {"true": True, "false": False}
    if text.lower() in known:
        return known[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_VARIANTS: dict[str, Variant] = {}


def variant(
    name: str,
    *,
    find_values: Callable[[Facts], Iterable[Value]],
    code: str,
    kinds: Sequence[str] = (),
    on_request: bool = False,
    keeps_results: bool = True,
    excludes: Mapping[Value, Sequence[str]] | None = None,
    valid_values: Sequence[Value] | None = None,
) -> Callable[[Callable[[Value, Applied], object]], Callable[[Value, Applied], object]]:
    """Register a function as the variant of this name; see `Variant` for the arguments."""

    def register(apply: Callable[[Value, Applied], object]) -> Callable[[Value, Applied], object]:
        _VARIANTS[name] = Variant(
            name, apply, find_values, code, tuple(kinds), on_request, keeps_results, excludes or {}, valid_values
        )
        return apply

    return register


def load_variants(files: Iterable[Path] = ()) -> dict[str, Variant]:
    """Return all variants by name: those of Kinetoscope, of installed packages, and of a user's ``files``.

    Raises `SettingsError` for a file or package that cannot be imported.
    """
    for module in sorted(module.name for module in pkgutil.iter_modules(importlib.import_module(_FIXES).__path__)):
        importlib.import_module(f"{_FIXES}.{module}")
    from importlib.metadata import entry_points  # here, since the import takes 10 ms

    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:
            raise SettingsError(f"Cannot load the variants of the entry point {point.name}: {error}.") from error
    for file in files:
        _import_file(file)
    return dict(sorted(_VARIANTS.items()))


def _import_file(file: Path) -> None:
    name = f"kinetoscope_variants_{file.absolute()}"  # not the stem: another folder may have it too
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise SettingsError(f"--variants: {file} is no Python file. Pass the path of a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise SettingsError(f"--variants: {file} cannot be imported: {type(error).__name__}: {error}.") from error
