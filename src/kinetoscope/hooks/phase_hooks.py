"""Reports of optimizers, backward passes and checkpoints to the pulse, by hooks of torch or replaced functions."""

import sys
from collections.abc import Callable
from functools import cache, partial
from threading import get_ident
from types import FrameType
from typing import Any

from kinetoscope.hooks.patching import ReplacedMethod
from kinetoscope.hooks.private_names import count_graph_nodes, run_backward
from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.pulse_recorder import PulseRecorder

_OTHER = int(Phase.OTHER)
_WITHOUT_GRADIENTS = (
    ("torch.autograd.grad_mode", "no_grad"),
    ("torch.autograd.grad_mode", "inference_mode"),
    ("torch.autograd.grad_mode", "set_grad_enabled"),
)
_WRITE_CHECKPOINTS = (
    ("torch", "save"),
    ("torch.distributed.checkpoint", "save"),
    ("safetensors.torch", "serialize_file"),  # `save_file`, which calls it, is bound by name elsewhere
)

# Dynamo ignores functions of torch's own autograd/graph.py: under its name ours breaks no graph. In tracebacks its
# frame would show a line of that file which did not run. Python adds no frame for a bare raise, so it is left out.
_AROUND = """
def around(original, entered, left):
    def _engine_run_backward(*arguments, **options):
        entered()
        try:
            return original(*arguments, **options)
        except BaseException as error:
            error.__traceback__ = error.__traceback__.tb_next
            raise
        finally:
            left()
    return _engine_run_backward
"""


class _Relay:
    """Hook that calls ``target``."""

    def __init__(self) -> None:
        self.target: Callable[..., object] = _do_nothing
        self.handle: Any = None

    def __call__(self, *arguments: object) -> None:
        self.target(*arguments)


_relays: dict[str, _Relay] = {}


def reserve_hooks() -> None:
    """Register hooks of optimizers for a later `PhaseHooks`, which can then be installed while torch calls hooks.

    Torch iterates over a dictionary of them, and raises an error into the training if that has changed meanwhile.
    """
    for name in ("pre", "post"):
        register = _find_register(name)
        if register is not None and name not in _relays:
            relay = _relays[name] = _Relay()
            relay.handle = register(relay)


def release_hooks() -> None:
    """Undo `reserve_hooks`. No `PhaseHooks` may be installed."""
    while _relays:
        _relays.popitem()[1].handle.remove()


def _find_register(name: str) -> Callable[[Any], Any] | None:
    """Return torch's function that registers a hook before or after all optimizer steps, which it has since 2.0."""
    return getattr(sys.modules.get("torch.optim.optimizer"), f"register_optimizer_step_{name}_hook", None)


def _do_nothing(*_: object) -> None:
    pass


class BackwardWatch:
    """While installed, calls ``on_start`` before and ``on_end`` after each backward pass, on any thread."""

    def __init__(self, on_start: Callable[[], object], on_end: Callable[[], object]) -> None:
        self._on_start, self._on_end = on_start, on_end
        self._around: Callable[..., Any] | None = None
        self._original: Any = None

    def install(self) -> None:
        """Start to watch, if torch is loaded."""
        graph = sys.modules.get("torch.autograd.graph")
        if run_backward.find() is None or graph is None:
            return
        self._original = getattr(sys.modules["torch.autograd"], run_backward.attribute)  # perhaps other code's
        names: dict[str, Any] = {}
        exec(compile(_AROUND, str(graph.__file__), "exec"), names)
        self._around = names["around"](self._original, self._on_start, self._on_end)
        setattr(sys.modules["torch.autograd"], run_backward.attribute, self._around)

    def remove(self) -> None:
        """Stop to watch. If other code has replaced the function since, ours stays below it."""
        autograd = sys.modules.get("torch.autograd")
        if self._around is not None and getattr(autograd, run_backward.attribute, None) is self._around:
            setattr(autograd, run_backward.attribute, self._original)
        self._around = None


class PhaseHooks:
    """While installed, reports the phases of one thread to ``pulse``.

    The thread is the one that installed it or that called `follow_thread` since. Without torch, or without an open
    pulse, nothing happens.
    """

    def __init__(self, pulse: PulseRecorder) -> None:
        self._pulse = pulse
        self._is_installed = False
        self._removals: list[Callable[[], object]] = []
        self._unhooked: list[tuple[str, str]] = []
        """Functions that write checkpoints, whose modules are not loaded yet."""

    def install(self) -> None:
        """Install the hooks, unless they are installed, torch is not loaded, or the pulse is not open."""
        has_torch = hasattr(sys.modules.get("torch"), "autograd")
        if not self._is_installed and has_torch and self._pulse.writer is not None:
            self._is_installed = True
            self._pulse.writer.watch_thread(get_ident())
            self._hook_optimizers()
            self._hook_backward()
            self._watch_graph()
            self._unhooked = list(_WRITE_CHECKPOINTS)
        if self._unhooked:
            self._hook_checkpoints()

    def follow_thread(self) -> None:
        """Report the phases of the calling thread from now on."""
        if self._is_installed:
            self._pulse.writer.watch_thread(get_ident())

    def remove(self) -> None:
        """Remove the hooks. They may be installed again."""
        if not self._is_installed:
            return
        self._is_installed = False
        self._pulse.writer.watch_thread(0)
        self._pulse.writer.watch_graph(None)
        while self._removals:
            self._removals.pop()()
        self._unhooked = []

    def _hook_optimizers(self) -> None:
        writer = self._pulse.writer
        for name, hook in (("pre", writer.begin_optimizer), ("post", writer.end_optimizer)):
            if (relay := _relays.get(name)) is not None:
                relay.target = hook
                self._removals.append(partial(setattr, relay, "target", _do_nothing))
            elif (register := _find_register(name)) is not None:
                self._removals.append(register(hook).remove)

    def _hook_backward(self) -> None:
        writer = self._pulse.writer
        watch = BackwardWatch(writer.begin_backward, writer.end_backward)
        watch.install()
        self._removals.append(watch.remove)

    def _watch_graph(self) -> None:
        """Let the writer detect where the autograd graph is built, and where a part without gradients ends."""
        count = count_graph_nodes.find()
        if count is None:
            return
        self._pulse.writer.watch_graph(count)
        for module_name, name in _WITHOUT_GRADIENTS:
            kind = getattr(sys.modules.get(module_name), name, None)
            if kind is not None:
                self._removals.append(ReplacedMethod(kind, "__exit__", self._leave_no_grad).restore)

    def _leave_no_grad(self, original: Callable[..., Any], *arguments: Any) -> Any:
        """Split the time in `Phase.OTHER` here: before is an evaluation or a rollout, after it the forward pass.

        Within the call of a module, it is a part of the forward pass.
        """
        result = original(*arguments)
        writer = self._pulse.writer
        try:  # `suppress` takes 20 times as long, and evaluations come here thousands of times
            if writer is not None and writer.has_no_graph() and not _is_in_module_call(sys._getframe(1)):
                writer.enter(_OTHER)
        except OSError:  # of a clock; the caller may be torch itself, also while it compiles
            pass
        return result

    def _hook_checkpoints(self) -> None:
        for function in list(self._unhooked):
            module_name, name = function
            module = sys.modules.get(module_name)
            if module is not None:
                self._unhooked.remove(function)
                if callable(getattr(module, name, None)):
                    self._removals.append(ReplacedMethod(module, name, self._write_checkpoint).restore)

    def _write_checkpoint(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        writer = self._pulse.writer
        writer.begin_checkpoint()
        try:
            return original(*arguments, **options)
        finally:
            writer.end_checkpoint()


def _is_in_module_call(frame: FrameType | None) -> bool:
    """Return whether the call of a torch module leads to this frame."""
    code = _find_code_of_module_calls()
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


@cache
def _find_code_of_module_calls() -> object:
    """Return the code of `torch.nn.Module.__call__`, which runs in a frame for each call of a module."""
    module: Any = sys.modules.get("torch.nn")
    return getattr(module.Module.__call__, "__code__", None) if module is not None else None
