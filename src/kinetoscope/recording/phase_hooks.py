"""Tells the pulse when optimizers step and backward passes run, in any loop: by torch's hooks, or in place of one."""

import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.own_pulse import OwnPulse
from kinetoscope.recording.private_names import run_backward

_OPTIMIZER = int(Phase.OPTIMIZER)

# Dynamo leaves functions of torch's own autograd/graph.py alone: under its name ours breaks no graph.
_AROUND = """
def around(original, entered, left):
    def _engine_run_backward(*arguments, **options):
        entered()
        try:
            return original(*arguments, **options)
        finally:
            left()
    return _engine_run_backward
"""


class PhaseHooks:
    """While installed, tells ``pulse`` what the thread that installed it does. Without torch nothing happens."""

    def __init__(self, pulse: OwnPulse) -> None:
        self._pulse = pulse
        self._thread: int | None = None
        self._handles: list[Any] = []
        self._around: Callable[..., Any] | None = None
        self._original: Any = None
        self._depth = 0
        self._before = self._before_backward = int(Phase.OTHER)
        self.num_backward: int = 0
        """How many backward passes have begun."""

    def install(self) -> None:
        """Begins, unless it has begun or torch is not loaded."""
        if self._thread is None and (torch := sys.modules.get("torch")) is not None and hasattr(torch, "autograd"):
            self._thread = get_ident()
            self._hook_optimizers()
            self._hook_backward()

    def remove(self) -> None:
        """Ends, for good or until it is installed again."""
        self._thread = None
        while self._handles:
            self._handles.pop().remove()
        autograd = sys.modules.get("torch.autograd")
        if self._around is not None and getattr(autograd, run_backward.attribute, None) is self._around:
            setattr(autograd, run_backward.attribute, self._original)
        self._around = None  # else other code has replaced it since: ours stays beneath it, and tells nothing

    def _hook_optimizers(self) -> None:
        module = sys.modules.get("torch.optim.optimizer")
        hooks = {"pre": self._optimizer_begins, "post": self._optimizer_ends}
        for name, hook in hooks.items():
            register = getattr(module, f"register_optimizer_step_{name}_hook", None)  # since torch 2.0
            if register is not None:
                self._handles.append(register(hook))

    def _hook_backward(self) -> None:
        graph = sys.modules.get("torch.autograd.graph")
        if run_backward.find() is None or graph is None:
            return
        original = getattr(sys.modules["torch.autograd"], run_backward.attribute)  # it may be others' by now
        names: dict[str, Any] = {}
        exec(compile(_AROUND, str(graph.__file__), "exec"), names)
        self._original, self._around = original, names["around"](original, self._backward_begins, self._backward_ends)
        setattr(sys.modules["torch.autograd"], run_backward.attribute, self._around)

    def _optimizer_begins(self, *_: object) -> None:
        if get_ident() == self._thread:
            self._before = self._pulse.enter(_OPTIMIZER)

    def _optimizer_ends(self, *_: object) -> None:
        if get_ident() == self._thread:
            self._pulse.enter(self._before)

    def _backward_begins(self) -> None:
        if get_ident() == self._thread:
            self._depth += 1
            if self._depth == 1:
                self.num_backward += 1
                self._before_backward = self._pulse.enter_backward()

    def _backward_ends(self) -> None:
        if get_ident() == self._thread:
            self._depth -= 1
            if self._depth == 0:
                self._pulse.enter(self._before_backward)
