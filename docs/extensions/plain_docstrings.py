"""Reads our docstrings as they are written: what is indented after an empty line is code."""

from typing import Any


def setup(app: Any) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", lambda *event: mark_code(event[-1]))
    return {"parallel_read_safe": True}


def mark_code(lines: list[str]) -> None:
    """Puts ``::`` before each indented block that follows a paragraph and an empty line."""
    marked: list[str] = []
    for line in lines:
        last = next((before for before in reversed(marked) if before), "")
        begins = line.startswith("    ") and marked[-1:] == [""] and not last.startswith((" ", "- "))
        marked += ["::", "", line] if begins else [line]
    lines[:] = marked
