"""Names of torch.profiler on Kinetoscope's engine around Kineto; ``import torch`` in here is the real torch."""

from kinetoscope.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401 - the first import of this package
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtraError(
        "TorchProfiler and kinetoscope.torch need torch, which is not installed. Install it as pytorch.org says for "
        "this machine: in most cases, pip install torch"
    ) from None

from torch.profiler import DeviceType, ProfilerAction, ProfilerActivity, itt

from kinetoscope.torch.execution_trace import ExecutionTraceObserver
from kinetoscope.torch.execution_trace import ITraceObserver as _ITraceObserver
from kinetoscope.torch.kineto_profile import WARNINGS_SHOWN as _WARNINGS_SHOWN
from kinetoscope.torch.kineto_profile import KinetoProfile as _KinetoProfile
from kinetoscope.torch.kineto_profile import kineto_available
from kinetoscope.torch.private_names import ExperimentalConfig as _ExperimentalConfig
from kinetoscope.torch.profile import PROFILER_STEP_NAME, profile
from kinetoscope.torch.record_function import record_function
from kinetoscope.torch.schedule import schedule
from kinetoscope.torch.session import supported_activities
from kinetoscope.torch.tensorboard_trace_handler import tensorboard_trace_handler

# torch.profiler does not promise these, but programs and libraries use them.
SEMI_PUBLIC = {
    "PROFILER_STEP_NAME": PROFILER_STEP_NAME,
    "_ExperimentalConfig": _ExperimentalConfig,
    "_ITraceObserver": _ITraceObserver,
    "_KinetoProfile": _KinetoProfile,
    "_WARNINGS_SHOWN": _WARNINGS_SHOWN,
}

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "itt",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
