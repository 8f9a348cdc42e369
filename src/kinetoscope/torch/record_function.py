"""`record_function`, which labels code with a span in traces and execution traces.

torch's own goes through its dispatcher twice per span, also when nothing records. This one checks that first, and then
calls the function of `torch.autograd` that makes the same span: category ``user_annotation``, user scope.
"""

# torch.autograd does not export all that its own profiler uses.
# pyright: reportPrivateImportUsage=false

from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import torch.autograd.profiler as autograd_profiler
from torch.compiler import is_compiling

from kinetoscope.torch.execution_trace import running_observers
from kinetoscope.torch.original_names import register_name, unaltered_names
from kinetoscope.torch.private_names import (
    begin_span,
    begin_span_with_args,
    end_span_with_future,
    records_on_this_thread,
)

P = ParamSpec("P")
R = TypeVar("R")


class record_function(ContextDecorator):  # noqa: N801 - torch's name
    """Record a span called ``name``, as a context manager or as a decorator for functions.

    ``args`` is text that execution traces keep as the span's input. If nothing records, a span costs about as much as
    creating this object. An object may be used again, also while it is open.

    >>> with record_function("forward"):
    ...     pass

    Inside code that torch compiles it does nothing, like torch's own.
    """

    __slots__ = ("_open", "args", "name", "run_callbacks_on_exit")

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name: str = name
        self.args: str | None = args
        self.run_callbacks_on_exit: bool = True
        self._open: Any = None

    def __enter__(self) -> Self:
        # For the compiler this condition is a constant True, so it never reaches the code that it could not trace.
        if is_compiling():
            return self
        # The fastest check first. The last misses a profiler of all threads; only the first sees an execution trace.
        if running_observers or autograd_profiler._is_profiler_enabled or records_on_this_thread():
            name = self.name if type(self.name) is str else _decode_name(self.name)
            if name not in unaltered_names:
                register_name(name)
            record = begin_span(name) if self.args is None else begin_span_with_args(name, self.args)
            self._open = (self._open, record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._open is not None:
            # torch's handle ends its span when it is freed, which costs less than a call; so it has no other reference.
            self._open = self._open[0]

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` with a span around each call."""
        name, args = self.name, self.args

        @wraps(function)
        def recorded(*positional: P.args, **named: P.kwargs) -> R:
            with record_function(name, args):
                return function(*positional, **named)

        return recorded

    @property
    def record(self) -> Any:
        """Handle of torch for the open span, or None; the span stays open as long as the handle is referenced."""
        return None if self._open is None else self._open[1]

    def _call_end_callbacks_on_future(self, future: Any) -> Any:
        """End the span when ``future`` is done instead of at the end of the block; may be called once."""
        if not self.run_callbacks_on_exit:
            raise RuntimeError("_call_end_callbacks_on_future can only be called once for a record_function.")
        self.run_callbacks_on_exit = False
        if self._open is None:
            return future
        return end_span_with_future(self._open[1], future)


def _decode_name(name: Any) -> str:
    """Return a name of another type as torch reads it; raise torch's own error for one that it refuses."""
    if isinstance(name, str | bytes):
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    begin_span_with_args(name, None)
    return str(name)
