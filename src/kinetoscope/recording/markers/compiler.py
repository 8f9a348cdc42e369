"""Integration with torch.compile: markers are inert in compiled code and do not break the graph.

Python code calls `is_compiling`, which Dynamo takes as True while it traces. ``with marker:`` calls nothing, so Dynamo
gets a variable type that treats every marker as an empty context.
"""

import sys
from typing import Any

from kinetoscope.core.background.private_names import find_all
from kinetoscope.recording.private_names import in_dynamo, variable_dispatch

_tried: set[type] = set()
_registered: set[type] = set()


def is_compiling() -> bool:  # noqa: F811 - it replaces itself
    """Return whether torch's compiler traces the caller. Once torch is loaded, torch's own function replaces it."""
    global is_compiling
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "compiler"):
        return False
    if torch.compiler.is_compiling():
        return True
    # Dynamo supports both functions. This one is quicker, and each call of a decorated function calls it.
    is_compiling = torch.compiler.is_dynamo_compiling
    return False


def register_with_dynamo(*marker_types: type) -> None:
    """Make Dynamo, if it is loaded, ignore ``with marker:`` and treat a marker's methods as returning None.

    Dynamo has no public way to do this. If its internals differ from those expected, one warning is logged, and a
    function with a marker inside runs uncompiled.
    """
    if _tried.issuperset(marker_types) or "torch._dynamo" not in sys.modules:
        return
    new = [kind for kind in marker_types if kind not in _tried]
    _tried.update(new)
    objects = find_all(*in_dynamo)
    if objects is None:
        return
    dispatch, *others = objects
    try:
        dispatch().update(dict.fromkeys(new, _make_dynamo_wrapper(*others)))
        _registered.update(new)
    except (AttributeError, TypeError) as error:
        variable_dispatch.warn_missing(f"Dynamo is different in this torch ({error})")


def is_registered(marker_type: type) -> bool:
    """Return whether Dynamo ignores markers of this type."""
    return marker_type in _registered


def _make_dynamo_wrapper(install_guards: Any, type_match: Any, make_constant: Any, null_context: Any) -> Any:
    """Return the function that creates Dynamo's variable for a marker."""

    class InertMarkerVariable(null_context):
        """Variable of a marker inside a compiled function."""

        def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            """Return a constant None for methods of markers."""
            if name in ("start", "finish", "instant", "counter", "begin", "end"):
                return make_constant(None)
            return super().call_method(tx, name, args, kwargs)

    def wrap(builder: Any, marker: Any) -> Any:
        install_guards(builder, type_match)
        return InertMarkerVariable(source=getattr(builder, "source", None))

    InertMarkerVariable(source=None)  # if this raises, then here, and not in a compilation
    return wrap
