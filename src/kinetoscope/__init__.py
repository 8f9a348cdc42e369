"""Profiler of PyTorch training runs, on all ranks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinetoscope.analysis.analyze import analyze
    from kinetoscope.analysis.compare.compare import compare
    from kinetoscope.api import profile
    from kinetoscope.core.job.event import Callback, Event
    from kinetoscope.core.job.state import State
    from kinetoscope.core.job.timestamp import Timestamp
    from kinetoscope.errors import KinetoscopeError
    from kinetoscope.frames.load import load
    from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
    from kinetoscope.merge.merge_traces import merge_traces
    from kinetoscope.recording.driver import Driver
    from kinetoscope.recording.markers.marker import Marker, marker
    from kinetoscope.recording.markers.schedule import ProfilerAction, cyclic_schedule
    from kinetoscope.recording.profiler import Profiler, active_profiler
    from kinetoscope.recording.window.trace_handler import TraceHandler
    from kinetoscope.report.notebook.view import view
    from kinetoscope.sources.compile_events import CompileEvents
    from kinetoscope.sources.float64_tensors import Float64Tensors
    from kinetoscope.sources.gc_pauses import GCPauses
    from kinetoscope.sources.growing_memory import GrowingMemory
    from kinetoscope.sources.loader_facts import LoaderFacts
    from kinetoscope.sources.module_calls import ModuleCalls
    from kinetoscope.sources.stack_sampler import StackSampler
    from kinetoscope.sources.system_profiler import SystemProfiler
    from kinetoscope.sources.torch_profiler import TorchProfiler

__version__ = "0.1.0"

# Each public name and its module, which is imported when the name is first used. So `import kinetoscope` is quick. The
# two of IPython's extensions are for ``%load_ext kinetoscope``.
_MODULES = {
    "Callback": "kinetoscope.core.job.event",
    "CompileEvents": "kinetoscope.sources.compile_events",
    "Driver": "kinetoscope.recording.driver",
    "Event": "kinetoscope.core.job.event",
    "Float64Tensors": "kinetoscope.sources.float64_tensors",
    "GCPauses": "kinetoscope.sources.gc_pauses",
    "GrowingMemory": "kinetoscope.sources.growing_memory",
    "JSONTraceHandler": "kinetoscope.handlers.json_trace_handler",
    "KinetoscopeError": "kinetoscope.errors",
    "LoaderFacts": "kinetoscope.sources.loader_facts",
    "ModuleCalls": "kinetoscope.sources.module_calls",
    "Marker": "kinetoscope.recording.markers.marker",
    "Profiler": "kinetoscope.recording.profiler",
    "ProfilerAction": "kinetoscope.recording.markers.schedule",
    "StackSampler": "kinetoscope.sources.stack_sampler",
    "State": "kinetoscope.core.job.state",
    "SystemProfiler": "kinetoscope.sources.system_profiler",
    "Timestamp": "kinetoscope.core.job.timestamp",
    "TorchProfiler": "kinetoscope.sources.torch_profiler",
    "TraceHandler": "kinetoscope.recording.window.trace_handler",
    "active_profiler": "kinetoscope.recording.profiler",
    "analyze": "kinetoscope.analysis.analyze",
    "compare": "kinetoscope.analysis.compare.compare",
    "cyclic_schedule": "kinetoscope.recording.markers.schedule",
    "load": "kinetoscope.frames.load",
    "load_ipython_extension": "kinetoscope.integrations.notebook",
    "marker": "kinetoscope.recording.markers.marker",
    "merge_traces": "kinetoscope.merge.merge_traces",
    "profile": "kinetoscope.api",
    "unload_ipython_extension": "kinetoscope.integrations.notebook",
    "view": "kinetoscope.report.notebook.view",
}

__all__ = [
    "Callback",
    "CompileEvents",
    "Driver",
    "Event",
    "Float64Tensors",
    "GCPauses",
    "GrowingMemory",
    "JSONTraceHandler",
    "KinetoscopeError",
    "LoaderFacts",
    "Marker",
    "ModuleCalls",
    "Profiler",
    "ProfilerAction",
    "StackSampler",
    "State",
    "SystemProfiler",
    "Timestamp",
    "TorchProfiler",
    "TraceHandler",
    "active_profiler",
    "analyze",
    "compare",
    "cyclic_schedule",
    "load",
    "marker",
    "merge_traces",
    "profile",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kinetoscope' has no attribute {name!r}")
    from importlib import import_module

    if name == "load":
        from kinetoscope.frames.module_table import set_module_builder

        set_module_builder(
            lambda traces: import_module("kinetoscope.analysis.modules.table").build_module_table(traces)
        )
    if name in ("analyze", "compare"):
        from kinetoscope.analysis.notebook_repr import set_notebook_renderer

        set_notebook_renderer(lambda result: import_module("kinetoscope.report.notebook.cell_html").render_cell(result))
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
