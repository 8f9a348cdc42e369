"""Source of the calls of torch modules: the forward pass, layer by layer."""

import sys
import weakref
from collections import Counter
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
from kinetoscope.sources.module_names import name_modules
from kinetoscope.sources.window_source import WindowSource

_MASK = ACTION_BITS[ProfilerAction.ACTIVE] | ACTION_BITS[ProfilerAction.ACTIVE_AND_SAVE]
_TORCH_MODULES = "torch.nn.modules.module"
_FUNCTION = "_wrapped_call_impl"
"""The name of torch's ``Module.__call__``, also where other code has replaced that by one that calls torch's."""

_Spans = dict[int, tuple[Any, native.Span | None]]


class ModuleCalls(WindowSource):
    """Record each call of a `torch.nn.Module` as a span with its qualified name.

    The name starts with the class of the outermost module, ``GPT.layers.3.attn``, and has a number where several models
    have that class. Its args are ``class`` and ``depth``, 0 for the outermost. A compiled module is one span.

    While a window is open, CPython calls the native extension where it would call ``torch.nn.Module.__call__``.
    No module, class or function is changed that Python code can see, so torch's compiler and torch.fx do not notice.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spans: _Spans = {}
        self._roots: dict[int, tuple[Any, str]] = {}
        """A weak reference and the first part of the names of its modules, by the id of an outermost module."""
        self._num_roots: Counter[str] = Counter()
        self._recorder: native.CallRecorder | None = None

    def install(self, run: RunContext) -> None:
        """Start to record the calls, if torch is loaded."""
        module_class = getattr(sys.modules.get(_TORCH_MODULES), "Module", None)
        if module_class is None:
            return
        function = vars(module_class).get(_FUNCTION)
        if not isinstance(function, FunctionType):
            run.report("Calls of modules are not recorded: this version of torch is not supported.")
            return
        recorder = native.CallRecorder(function, self._spans, partial(run.call_in_hook, self, self._find, run))
        try:
            recorder.start()
        except RuntimeError as error:
            run.report(f"Calls of modules are not recorded: {error}.")
        else:
            self._recorder = recorder

    def batch_start(self, state: RunState, logger: Any) -> None:
        """Start to record the calls if torch was loaded since the window opened."""
        del state, logger
        if self._run is not None and self._recorder is None:
            self.install(self._run)

    def remove(self) -> None:
        """Stop to record the calls."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()
        for known in (self._spans, self._roots):
            for key in [key for key, entry in list(known.items()) if entry[0]() is None]:
                known.pop(key, None)

    def _find(self, run: RunContext, module: Any, outermost: Any) -> native.Span | None:
        """Return the span of a module that has none yet: name the model around it, or what is new in that.

        A module that is not registered in that model, such as one in a list, is a model of its own.
        """
        for root in (outermost, module):
            self._name_model(run, root)
            if (span := self._spans.get(id(module))) is not None and span[0]() is module:
                return span[1]
        return None

    def _name_model(self, run: RunContext, root: Any) -> None:
        modules = list(name_modules(root))
        reference, prefix = self._roots.get(id(root), (None, ""))
        if reference is None or reference() is not root:
            self._num_roots[first := modules[0].class_name] += 1
            prefix = first if self._num_roots[first] == 1 else f"{first}-{self._num_roots[first]}"
            self._roots[id(root)] = weakref.ref(root), prefix
        for module, name, class_name, is_recorded in modules:
            known = self._spans.get(id(module))
            if known is None or known[0]() is not module:
                span = self._new_span(run, f"{prefix}.{name}" if name else prefix, class_name) if is_recorded else None
                self._spans[id(module)] = weakref.ref(module), span

    def _new_span(self, run: RunContext, name: str, class_name: str) -> NativeSpan:
        args = (("class", class_name), ("depth", name.count(".")))
        return NativeSpan(run.recorder, run.recorder.names.intern(name, (MODULE,), args), _MASK)
