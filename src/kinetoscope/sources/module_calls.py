"""Source of the calls of torch modules: the forward pass, layer by layer."""

import sys
import threading
import weakref
from functools import partial
from types import FunctionType
from typing import Any

from kinetoscope.core.job.state import RunState
from kinetoscope.formats.trace_names import MODULE
from kinetoscope.native import native
from kinetoscope.recording.markers.native_recorder import NativeSpan
from kinetoscope.recording.markers.recorder_types import ACTION_BITS
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.sources.module_names import get_class_name, is_compiler_graph, name_modules, unwrap
from kinetoscope.sources.window_source import WindowSource

_MASK = ACTION_BITS[ProfilerAction.ACTIVE] | ACTION_BITS[ProfilerAction.ACTIVE_AND_SAVE]
_TORCH_MODULES = "torch.nn.modules.module"
_FUNCTION = "_wrapped_call_impl"
"""The name of torch's ``Module.__call__``, also where other code has replaced that by one that calls torch's."""

_Known = tuple[Any, native.Span | None, str]
"""A weak reference to a module, its span, None if it is not recorded, and its name."""


class ModuleCalls(WindowSource):
    """Record each call of a `torch.nn.Module` as a span with its qualified name.

    The name starts with the class of the outermost module, ``GPT.layers.3.attn``, and has a number where several models
    of that class exist at a time. Its args are ``class`` and ``depth``, 0 for the outermost. A compiled module is one
    span, as is a wrapper with the module in it.

    While a window is open, CPython calls the native extension where it would call ``torch.nn.Module.__call__``.
    No module, class or function is changed that Python code can see, so torch's compiler and torch.fx do not notice.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, _Known] = {}
        """Modules by their id. A dead one may have had the id of a new one."""
        self._roots: dict[str, list[Any]] = {}
        """Weak references to outermost modules by class; a dead one's number is free."""
        self._spans: dict[tuple[str, str], NativeSpan] = {}
        """Spans by name and class."""
        self._lock = threading.RLock()
        self._recorder: native.CallRecorder | None = None

    def install(self, run: RunContext) -> None:
        """Start recording the calls, if torch is loaded."""
        module_class = getattr(sys.modules.get(_TORCH_MODULES), "Module", None)
        if module_class is None:
            return
        function = vars(module_class).get(_FUNCTION)
        if not isinstance(function, FunctionType):
            run.report("Calls of modules are not recorded: this version of torch is not supported.")
            return
        recorder = native.CallRecorder(function, self._known, partial(run.call_in_hook, self, self._find, run))
        try:
            recorder.start()
        except RuntimeError as error:
            run.report(f"Calls of modules are not recorded: {error}.")
        else:
            self._recorder = recorder

    def batch_start(self, state: RunState, logger: Any) -> None:
        """Start recording the calls if torch was loaded since the window opened."""
        del state, logger
        if self._run is not None and self._recorder is None:
            self.install(self._run)

    def remove(self) -> None:
        """Stop recording the calls."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()
        for key in [key for key, (module, *_) in list(self._known.items()) if module() is None]:
            self._known.pop(key, None)

    def _find(self, run: RunContext, module: Any, outermost: Any) -> native.Span | None:
        """Return the span of a module that has none yet: name the model around it, or what is new in that.

        A module that is not registered in that model, such as one in a list, is a model of its own.
        """
        with self._lock:
            for root in (module,) if self._is_likely_new_model(module) else (outermost, module):
                if (known := self._get_known(module)) is not None:
                    return known[1]
                self._name_model(run, root)
            known = self._get_known(module)
            return known[1] if known is not None else None

    def _is_likely_new_model(self, module: Any) -> bool:
        """Return whether a model of a module's class was freed: then the module is likely a model of its own."""
        return any(root() is None for root in self._roots.get(get_class_name(module), ()))

    def _get_known(self, module: Any) -> _Known | None:
        known = self._known.get(id(module))
        return known if known is not None and known[0]() is module else None

    def _name_model(self, run: RunContext, root: Any) -> None:
        known = self._get_known(root) or self._get_known(unwrap(root))
        prefix = known[2] if known is not None else self._name_root(root)
        for module, name, wrapped in name_modules(root):
            if self._get_known(module) is None:
                same = self._get_known(wrapped)
                full_name = same[2] if same is not None else f"{prefix}.{name}" if name else prefix
                span = None if is_compiler_graph(module) else self._get_span(run, full_name, get_class_name(wrapped))
                self._known[id(module)] = weakref.ref(module), span, full_name

    def _name_root(self, root: Any) -> str:
        """Return the class of a model, with the lowest number that no living one has."""
        class_name = get_class_name(unwrap(root))
        roots = self._roots.setdefault(class_name, [])
        number = next((number for number, other in enumerate(roots) if other() is None), len(roots))
        roots[number : number + 1] = [weakref.ref(root)]
        return f"{class_name}-{number + 1}" if number else class_name

    def _get_span(self, run: RunContext, name: str, class_name: str) -> NativeSpan:
        """Return the span of a name. A wrapper and the module in it have the same one, which is recorded once."""
        span = self._spans.get((name, class_name))
        if span is None:
            args = (("class", class_name), ("depth", name.count(".")))
            span = NativeSpan(run.recorder, run.recorder.names.intern(name, (MODULE,), args), _MASK)
            self._spans[name, class_name] = span
        return span
