"""Types of page data: writes web/src/page_data.ts and runs/list_data.ts from the dataclasses in Python.

`make web` runs it.
"""

import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import UnsetType

from kinetoscope.analysis.compare.comparison import Comparison
from kinetoscope.analysis.run_report import TABLES, RunReport
from kinetoscope.pages.page_data import Column, PageData
from kinetoscope.pages.run_list import ListData, RunOverview

_NAMED: dict[str, type] = {"RunReport": RunReport, "Comparison": Comparison, "RunOverview": RunOverview}
_LEFT_OUT = {"RunReport": {field.name for field in fields(RunReport)} - {"run", *TABLES}, "Finding": {"fix"}}
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null", Any: "unknown"}


def generate(shown: type) -> str:
    """Return the file with the type of a page's data."""
    written: dict[str, str] = {}
    _interface(shown, written)
    head = f"// Made from the dataclasses of {shown.__module__} by web/generate_types.py. Do not edit.\n"
    return "\n".join((head, *written.values()))


def _interface(kind: type, written: dict[str, str]) -> str:
    """Return the name of the interface of a dataclass or TypedDict; add it to ``written`` after those that it needs."""
    if kind is Column:
        written.setdefault("Column", _COLUMN)
        return "Column"
    if kind.__name__ not in written:
        hints = get_type_hints(kind, include_extras=True)
        shown = [field.name for field in fields(kind)] if is_dataclass(kind) else hints  # no class variables
        names = [name for name in shown if name not in _LEFT_OUT.get(kind.__name__, ())]
        lines = [f"  {_property(name, hints[name], written)};\n" for name in names]
        written[kind.__name__] = f"export interface {kind.__name__} {{\n{''.join(lines)}}}\n"
    return kind.__name__


def _property(name: str, hint: Any, written: dict[str, str]) -> str:
    """Return the declaration of a property; one that may be unset is optional."""
    parts = get_args(hint)
    if UnsetType not in parts:
        return f"{name}: {_type(hint, written)}"
    (known,) = set(parts) - {UnsetType}
    return f"{name}?: {_type(known, written)}"


def _type(hint: Any, written: dict[str, str]) -> str:
    """Return the TypeScript type of a type hint."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Annotated:
        return _interface(_NAMED[parts[1]], written)
    if origin is UnionType or (origin is not None and str(origin) == "typing.Union"):
        return " | ".join(dict.fromkeys(_type(part, written) for part in parts))
    if origin is dict:
        return f"Record<string, {_type(parts[1], written)}>"
    if origin in (list, tuple) and len(parts) == 2 and parts[1] is not Ellipsis:
        return f"[{', '.join(_type(part, written) for part in parts)}]"
    if origin in (list, tuple):
        return _array(parts[0], written)
    if hint is Column or is_dataclass(hint) or is_typeddict(hint):
        return _interface(hint, written)
    raise TypeError(f"generate_types.py does not know how TypeScript writes {hint}")


def _array(part: Any, written: dict[str, str]) -> str:
    """Return an array type; pairs of name and value are objects in the result of ``to_dict()``."""
    if get_origin(part) is tuple and get_args(part)[0] is str:
        return f"Record<string, {_type(get_args(part)[1], written)}>"
    element = _type(part, written)
    return f"({element})[]" if " " in element else f"{element}[]"


_COLUMN = """/** Location of encoded numbers: see Column in page_data.py, and numbers() in payload.ts. */
export interface Column {
  offset: number;
  length: number;
  num_bytes: number;
  is_delta: boolean;
}
"""

if __name__ == "__main__":
    for name, shown in (("page_data.ts", PageData), ("runs/list_data.ts", ListData)):
        Path(sys.argv[1], name).write_text(generate(shown), encoding="utf-8")
