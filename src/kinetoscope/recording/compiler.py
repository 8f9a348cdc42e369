"""Makes markers do nothing under torch's compiler, so that they do not break its graph.

Our Python code asks `is_compiling`, which Dynamo takes as True while it traces. ``with marker:`` asks nothing, so
Dynamo is taught to treat every marker as an empty context.
"""

import logging
import sys
from typing import Any

_log = logging.getLogger("kinetoscope")
_tried: set[type] = set()
_taught: set[type] = set()


def is_compiling() -> bool:  # noqa: F811 - it replaces itself
    """Whether torch's compiler is tracing the caller. Once torch is loaded, torch's own function replaces this one."""
    global is_compiling
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "compiler"):
        return False
    if torch.compiler.is_compiling():
        return True
    # Dynamo knows both functions. This one is quicker, and each call of a decorated function calls it.
    is_compiling = torch.compiler.is_dynamo_compiling
    return False


def teach_dynamo(*marker_types: type) -> None:
    """Makes Dynamo, if it is loaded, ignore ``with marker:`` and treat a marker's methods as returning None.

    Dynamo has no public way to do this. If its internals differ from what we expect, one warning says so, and a
    function with a marker inside runs uncompiled.
    """
    builder: Any = sys.modules.get("torch._dynamo.variables.builder")
    new = [kind for kind in marker_types if kind not in _tried]
    if builder is None or not new:
        return
    _tried.update(new)
    try:
        wrap = _dynamo_wrapper(builder)
        builder.VariableBuilder._type_dispatch().update(dict.fromkeys(new, wrap))
        _taught.update(new)
    except (AttributeError, TypeError, ImportError) as error:
        _log.warning(
            "This version of torch cannot be told to ignore markers (%s): a compiled function with a ready-made "
            "`with marker:` inside runs uncompiled. Use @marker or `with kinetoscope.marker(name):` there.",
            error,
        )


def is_known(marker_type: type) -> bool:
    """Whether Dynamo was taught to ignore these markers."""
    return marker_type in _taught


def _dynamo_wrapper(builder: Any) -> Any:
    from torch._dynamo.guards import GuardBuilder  # pyright: ignore[reportMissingImports]
    from torch._dynamo.variables import ConstantVariable  # pyright: ignore[reportMissingImports]
    from torch._dynamo.variables.ctx_manager import NullContextVariable  # pyright: ignore[reportMissingImports]

    class InertMarkerVariable(NullContextVariable):
        """A marker inside a compiled function."""

        def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name in ("start", "finish", "instant", "counter", "begin", "end"):
                return ConstantVariable.create(None)
            return super().call_method(tx, name, args, kwargs)

    def wrap(self: Any, marker: Any) -> Any:
        self.install_guards(GuardBuilder.TYPE_MATCH)
        return InertMarkerVariable(source=self.source)

    return wrap
