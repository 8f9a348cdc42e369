"""torch: torch.profiler's names, on our own engine around Kineto. Inside, ``import torch`` is the real one."""

from torch.autograd.profiler import record_function
from torch.profiler import DeviceType, ExecutionTraceObserver, ProfilerAction, ProfilerActivity

from kinetoscope.torch.activities import supported_activities
from kinetoscope.torch.handlers import tensorboard_trace_handler
from kinetoscope.torch.kineto_profile import kineto_available
from kinetoscope.torch.profile import profile
from kinetoscope.torch.schedule import schedule

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
