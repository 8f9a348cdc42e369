"""Names and defaults of `composer.profiler`, on our engine.

- from composer.profiler import JSONTraceHandler, Profiler, cyclic_schedule
+ from kinetoscope.composer import JSONTraceHandler, Profiler, cyclic_schedule
"""

from kinetoscope.composer.json_trace_handler import JSONTraceHandler
from kinetoscope.composer.marker import Marker
from kinetoscope.composer.profiler import Profiler
from kinetoscope.composer.profiler_action import ProfilerAction
from kinetoscope.composer.profiler_schedule import cyclic_schedule
from kinetoscope.composer.system_profiler import SystemProfiler
from kinetoscope.composer.torch_profiler import TorchProfiler
from kinetoscope.composer.trace_handler import TraceHandler

__all__ = [
    "JSONTraceHandler",
    "Marker",
    "Profiler",
    "ProfilerAction",
    "SystemProfiler",
    "TorchProfiler",
    "TraceHandler",
    "cyclic_schedule",
]
