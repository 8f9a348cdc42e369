"""Private names of torch, with the feature that each is for.

Each is looked up once, here. Where this torch lacks one, recording continues: either the code works without it, and one
line in the log names the consequence, or the one feature that needs it raises `ProfilerStateError`.
"""

import ctypes
import importlib
import logging
import operator
import os
from pathlib import Path
from typing import Any

import torch
import torch.autograd.profiler as autograd_profiler

from kinetoscope.errors import ProfilerStateError

_log = logging.getLogger("kinetoscope")

looked_up_names: list[tuple[str, str]] = []
"""Module and name of each private name."""


class MissingNameError(ProfilerStateError):
    """This torch lacks a name that a feature needs."""


class _Missing:
    """Placeholder for a name that this torch lacks; any use raises an error that names the feature."""

    def __init__(self, path: str, feature: str) -> None:
        self._message = f"{feature} needs {path}, which torch {torch.__version__} does not have."

    def _fail(self, *_: object) -> Any:
        raise MissingNameError(self._message)

    __call__ = __getattr__ = __instancecheck__ = _fail


def _find(module: str, name: str) -> Any:
    looked_up_names.append((module, name))
    try:
        return operator.attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError):
        return None


def _find_required(module: str, name: str, feature: str) -> Any:
    """Return the name in a module; without it, ``feature`` raises when it is used."""
    found = _find(module, name)
    return _Missing(f"{module}.{name}", feature) if found is None else found


def _find_or_default(module: str, name: str, default: Any, consequence: str, is_expected: bool = True) -> Any:
    """Return the name in a module, or ``default``; the log names the consequence if this torch should have it."""
    found = _find(module, name)
    if found is None and is_expected:
        _log.warning("torch %s does not have %s.%s, so %s.", torch.__version__, module, name, consequence)
    return default if found is None else found


# Recording.
_RECORDING = "Recording torch's operators"
prepare_trace = _find_required("torch.autograd.profiler", "profile._prepare_trace", _RECORDING)
start_trace = _find_required("torch.autograd.profiler", "profile._start_trace", _RECORDING)
records_on_this_thread = _find_or_default(
    "torch.autograd",
    "_profiler_enabled",
    lambda: autograd_profiler._is_profiler_enabled,
    "a profiler that was not started through torch.profiler is not noticed",
)
run_on_profiler_start = _find_or_default(
    "torch.autograd.profiler",
    "_run_on_profiler_start",
    None,
    "a profiler that is started while another one records may end when that one does",
)
supported_activities = _find_or_default(
    "torch.autograd",
    "_supported_activities",
    lambda: {torch.profiler.ProfilerActivity.CPU},
    "devices are recorded only where `activities` names them",
)
_find_or_default(
    "torch.autograd",
    "_is_kineto_stopped",
    None,
    "a device that stops collecting is not noticed",
    is_expected=hasattr(torch.profiler.ProfilerAction, "DEVICE_STOPPED"),  # torch 2.11 has neither
)


def device_has_stopped() -> bool:
    """Return whether the device has stopped collecting.

    The function is looked up at each call, as torch does, because programs and torch's own tests replace it.
    """
    return getattr(torch.autograd, "_is_kineto_stopped", bool)()


privateuse1_name = _find_or_default(
    "torch._C", "_get_privateuse1_backend_name", lambda: "privateuseone", "a backend of others has no name of its own"
)
add_kineto_metadata = _find_or_default(
    "torch.autograd", "_add_metadata_json", lambda key, text: None, "a save by Kineto itself lacks the metadata"
)


def all_process_groups(distributed: Any) -> Any:
    """Return the groups of this rank for the header of a trace; empty if this torch lacks them."""
    return getattr(distributed.distributed_c10d, "_get_all_pg_configs", list)()


def world_process_groups(distributed: Any) -> Any:
    """Return the groups of the world for an execution trace; empty if this torch lacks them."""
    return getattr(getattr(distributed.distributed_c10d, "_world", None), "pg_config_info", [])


def gloo_thread_counts(distributed: Any) -> list[tuple[str, int]]:
    """Return the names of this rank's groups with gloo, oldest first, each with its number of threads.

    The list is empty if this torch does not have them.
    """
    found = []
    try:
        for group in distributed.distributed_c10d._world.pg_map:
            backends = {id(backend): backend for backend in map(group._get_backend, group._device_types)}
            counts = [backend.options._threads for backend in backends.values() if backend.name() == "gloo"]
            found += [(str(group.group_name), sum(counts))] if counts else []
    except Exception:  # another version of torch, or a group that is being destroyed
        return []
    return found


# Log lines.
_LEVEL_OFF = 6
"""Kineto logs each start and stop at USDT, 5, which is above its errors."""


def _find_log_level() -> "ctypes.c_int | None":
    """Return Kineto's variable for its log level; None where the library does not export it."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        return ctypes.c_int.in_dll(library, "_ZN9libkineto6Logger14severityLevel_E")
    except (OSError, ValueError):
        return None


class _LogSilencer:
    """Block in which a prepared Kineto logs nothing, unless the user has set its log level.

    No frame of other code runs here: the block is within recordings with stacks.
    """

    def __init__(self) -> None:
        self._level = None if "KINETO_LOG_LEVEL" in os.environ else _find_log_level()
        self._before = 0

    def __enter__(self) -> None:
        if self._level is not None:
            self._before, self._level.value = self._level.value, _LEVEL_OFF

    def __exit__(self, *_: object) -> None:
        if self._level is not None:
            self._level.value = self._before


kineto_silenced = _LogSilencer()


# Spans.
_record_function_enter_new = _find_required("torch", "ops.profiler._record_function_enter_new", "record_function")


def begin_span_with_args(name: str, args: str | None) -> Any:
    """Start a span with text that execution traces keep; it ends when the returned handle is freed."""
    return _record_function_enter_new(name, args)


_enter = _find_or_default("torch.autograd", "_record_function_with_args_enter", None, "record_function takes longer")
_exit = _find_or_default(
    "torch.autograd", "_record_function_with_args_exit", None, "execution traces of several ranks do not list groups"
)
begin_span = _enter or (lambda name: begin_span_with_args(name, None))
"""Start a span; it ends when the returned handle is freed."""


def record_inputs(name: str, text: str) -> None:
    """Record a span of zero length with text as its input, if this torch can."""
    if _enter is not None and _exit is not None:
        _exit(_enter(name, text))


end_span_with_future = _find_required(
    "torch", "ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction", "_call_end_callbacks_on_future"
)

# Tables and events.
KinetoEvent = _find_or_default("torch._C._autograd", "_KinetoEvent", None, "tables and events take longer")
demangle = _find_or_default("torch._C", "_demangle", lambda name: name, "C++ functions are shown with their symbols")
build_metadata = _find_required("torch.autograd.profiler_util", "_build_metadata", "event_metadata")

# Execution traces.
_EXECUTION_TRACE = "An execution trace"
add_observer = _find_required("torch._C._profiler", "_add_execution_trace_observer", _EXECUTION_TRACE)
enable_observer = _find_required("torch._C._profiler", "_enable_execution_trace_observer", _EXECUTION_TRACE)
disable_observer = _find_required("torch._C._profiler", "_disable_execution_trace_observer", _EXECUTION_TRACE)
remove_observer = _find_required("torch._C._profiler", "_remove_execution_trace_observer", _EXECUTION_TRACE)

# The memory timeline, and stacks before torch 2.12.
_TIMELINE = "A memory timeline"
EventType = _find_required("torch._C._profiler", "_EventType", _TIMELINE)
TensorMetadata = _find_required("torch._C._profiler", "_TensorMetadata", _TIMELINE)
SchemaMatcher = _find_required("torch.profiler._memory_profiler", "SchemaMatcher", _TIMELINE)
MemoryProfile = _find_required("torch.profiler._memory_profiler", "MemoryProfile", "_memory_profile()")

# For users.
ExperimentalConfig = _find_required("torch._C._profiler", "_ExperimentalConfig", "experimental_config")
