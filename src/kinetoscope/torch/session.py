"""Activities to record, and the session that prepares, starts and stops Kineto.

A process has one Kineto, and a call in the wrong order ends it with a segmentation fault: a start without a prepare, a
prepare while it records, or saving the results of a second stop. `Session` allows only safe orders, also when other
code uses Kineto in between.
"""

# torch.autograd does not export all that its own profiler uses.
# pyright: reportPrivateImportUsage=false

import atexit
import contextlib
import copy
import importlib
import inspect
import json
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import torch
import torch.autograd.profiler as autograd_profiler
from torch.profiler import ProfilerActivity

import kinetoscope.torch.private_names as private_names
from kinetoscope.core.background.background_thread import unprofile_background_threads
from kinetoscope.core.background.early_exit import early_exit, skip_handlers_in_forks
from kinetoscope.errors import ActivityTypeError, NoActivitiesError, ProfilerStateError, SettingsError
from kinetoscope.hooks.patching import ReplacedMethod

Activity = ProfilerActivity | dict[ProfilerActivity, list[str]]


@dataclass(frozen=True, slots=True)
class ActivitySelection:
    """Activities to record; for those in ``filters``, only events of these types."""

    activities: set[ProfilerActivity]
    filters: dict[ProfilerActivity, set[str]] = field(default_factory=dict)

    def device(self) -> str | None:
        """Return the name of the device that is recorded in addition to the CPU, or None."""
        for name, device in _device_names():
            if getattr(ProfilerActivity, name, None) in self.activities:
                return device
        return None


def supported_activities() -> set[ProfilerActivity]:
    """Return the activities that this machine and this build of torch can record."""
    return private_names.supported_activities()


def select_activities(wanted: Iterable[Activity] | None) -> ActivitySelection:
    """Return the checked argument ``activities`` of a profiler; None means everything that is supported.

    Raises:
        SettingsError: It is also a TypeError for an item that is not an activity, and an AssertionError if there is
            none.
    """
    if wanted is None:
        return ActivitySelection(supported_activities())
    selection = ActivitySelection(set())
    for item in wanted:
        _add_activity(selection, item)
    if not selection.activities:
        raise NoActivitiesError("activities is empty, so there is nothing to record. Leave it out to record all.")
    return selection


def _add_activity(selection: ActivitySelection, item: object) -> None:
    for activity, types in item.items() if isinstance(item, dict) else ((item, None),):
        if not isinstance(activity, ProfilerActivity):
            raise ActivityTypeError(
                f"activities contains {item!r}. It takes members of ProfilerActivity, and dicts from such a member to "
                "a list of the names of the activity types to record."
            )
        if activity in selection.activities:
            raise SettingsError(f"activities names {activity} more than once.")
        selection.activities.add(activity)
        if types is not None:
            selection.filters[activity] = _check_type_names(activity, types)


def _check_type_names(activity: ProfilerActivity, types: object) -> set[str]:
    if not isinstance(types, Iterable) or isinstance(types, str):
        raise ActivityTypeError(
            f"activities has {types!r} for {activity}. It takes a list of the names of activity types; torch 2.15's "
            "configuration objects are not supported."
        )
    return set(types)


def _device_names() -> Iterable[tuple[str, str]]:
    yield from (("CUDA", "cuda"), ("XPU", "xpu"), ("MTIA", "mtia"), ("HPU", "hpu"))
    yield "PrivateUse1", private_names.privateuse1_name()


class Phase(Enum):
    """State of a session."""

    IDLE = auto()
    PREPARED = auto()
    RECORDING = auto()
    ENDED = auto()
    """The recording has ended with its thread, and `Session.stop` has not returned it yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordingOptions:
    """Checked options of `kinetoscope.torch.profile` that concern Kineto."""

    use_cpu: bool = True
    use_device: str | None = None
    activity_filters: dict[ProfilerActivity, set[str]] = field(default_factory=dict)
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    experimental_config: Any = None
    post_processing_timeout_s: float | None = None
    trace_id_callback: Callable[[], str] | None = None

    def __post_init__(self) -> None:
        timeout_s = self.post_processing_timeout_s
        if timeout_s is not None and timeout_s < 0:
            raise SettingsError(f"post_processing_timeout_s must be non-negative, but is {timeout_s}.")
        if self.trace_only and self.with_stack:
            warnings.warn("trace_only keeps no stacks, so with_stack=True switches trace_only off.", stacklevel=4)
            object.__setattr__(self, "experimental_config", _without_trace_only(self.experimental_config))

    @property
    def trace_only(self) -> bool:
        """True if Kineto keeps only the trace, and no events for tables."""
        return getattr(self.experimental_config, "trace_only", False)

    @property
    def custom_profiler_config(self) -> dict[str, Any]:
        """Configuration for other backends, as torch reads it: a JSON object, else the name of a backend."""
        text = getattr(self.experimental_config, "custom_profiler_config", None)
        try:
            config = json.loads(text) if text else {}
        except ValueError:
            return {"backend": text}
        return config if isinstance(config, dict) else {}

    @property
    def flags(self) -> dict[str, bool]:
        """Switches that a trace's header lists if they are on."""
        names = ("profile_memory", "with_stack", "record_shapes", "with_modules", "with_flops")
        return {name: bool(getattr(self, name)) for name in names}


# The session that has prepared or started Kineto. A global, because a process has one Kineto, which two
# independent sessions would crash.
_current_session: "weakref.ref[Session] | None" = None


@dataclass(eq=False)
class Session:
    """Prepare, start and stop Kineto.

    Attributes:
        options: Options that it was prepared with.
        autograd_profile: torch's object for the current recording.
        all_threads: Kineto records every thread, and any thread may stop it.
    """

    options: RecordingOptions = field(default_factory=RecordingOptions)
    phase: Phase = Phase.IDLE
    autograd_profile: Any = None
    all_threads: bool = field(default=False, init=False)
    num_started: int = field(default=0, init=False)
    _thread: int = field(default=0, init=False)
    _pid: int = field(default_factory=os.getpid, init=False)
    _is_replaced: bool = field(default=False, init=False)
    _start_patch: ReplacedMethod | None = field(default=None, init=False)
    _profile_hook: Any = field(default=None, init=False)
    """Hook of `sys.setprofile` that torch replaced to record stacks."""

    @property
    def recording(self) -> bool:
        """True if Kineto is recording for this session, or was until its thread ended."""
        return self.phase in (Phase.RECORDING, Phase.ENDED)

    def prepare(self, options: RecordingOptions) -> None:
        """Prepare Kineto.

        Without a device, preparing takes half a millisecond and warms nothing up, so it is deferred to the start:
        another profiler may run in between, and starting an older preparation after it would crash.

        Raises:
            ProfilerStateError: A profiler records, or another one is prepared.
        """
        if self.phase is Phase.PREPARED:
            return
        if self.recording:
            raise ProfilerStateError("This profiler is recording already. Stop it before you start it again.")
        self._claim()
        with self._release_on_error():
            self.options = options
            self.autograd_profile = self._make_autograd_profile()
            _freeze_trace_id(self.autograd_profile)
            if self._has_device():
                private_names.prepare_trace(self.autograd_profile)
        self.phase = Phase.PREPARED

    def start(self, options: RecordingOptions) -> None:
        """Start recording on this thread; prepare with ``options`` first if that was not done."""
        self.prepare(options)
        with self._release_on_error():
            _check_nothing_records()
            if not self._has_device():
                private_names.prepare_trace(self.autograd_profile)
            _exit_guard.mark_started()
            self._profile_hook = sys.getprofile() if self.options.with_stack else None
            with private_names.kineto_silenced:
                private_names.start_trace(self.autograd_profile)
            if self.options.with_stack:
                unprofile_background_threads()
        # torch's configuration does not reveal its arguments; a recording of all threads is not enabled on this one.
        self.all_threads = not private_names.records_on_this_thread()
        self._thread = threading.get_ident()
        self.phase = Phase.RECORDING
        self.num_started += 1
        self._detect_other_profilers()

    def _detect_other_profilers(self) -> None:
        """Detect another profiler's start: Kineto then records for that one, and this session must not stop it."""
        session, self._is_replaced = weakref.ref(self), False

        def on_start(original: Callable[[], object]) -> object:
            if (replaced := session()) is not None:
                replaced._is_replaced = True
            return original()

        if private_names.run_on_profiler_start is not None:
            self._start_patch = ReplacedMethod(
                autograd_profiler, private_names.run_on_profiler_start.__name__, on_start
            )

    def stop(self) -> Any:
        """End the recording and return torch's object that has it; None if nothing was recorded.

        A session that was only prepared is started and stopped, because Kineto stays prepared otherwise.
        """
        self.check_thread()
        if self.phase is Phase.PREPARED:
            self._unprepare()
        if self.phase is Phase.ENDED:
            self._release()
            return self.autograd_profile
        if not self.recording or self._is_recording_lost():
            self._release()
            return None
        self._stop_and_release()
        return self.autograd_profile

    def end_on_thread_exit(self) -> None:
        """End the recording on its exiting thread; `stop` then returns it on any thread."""
        if (
            self.phase is Phase.RECORDING
            and self.can_stop_here
            and not self.is_forked
            and not self._is_recording_lost()
        ):
            self._stop_kineto()
            self.phase = Phase.ENDED

    def drop_profile(self) -> None:
        """Drop the reference to torch's object after the caller has taken the results."""
        if self.phase is Phase.IDLE:
            self.autograd_profile = None

    def check_thread(self) -> None:
        """Raise `ProfilerStateError` if only another thread, which started the recording, may stop it."""
        if self.recording and not self.can_stop_here:
            raise ProfilerStateError(
                "The profiler was started on another thread, and Kineto stops only on the thread that started it. "
                "Call step() and stop() on that thread, or record with profile_all_threads."
            )

    @property
    def is_forked(self) -> bool:
        """True in a forked child's copy of a session, where Kineto's threads do not exist to stop it."""
        return self._pid != os.getpid()

    def __del__(self) -> None:
        if self.phase is not Phase.IDLE and not self.is_forked:
            warnings.warn("A torch profiler was dropped while it ran. Stop it first.", ResourceWarning, stacklevel=2)
            if not self.recording or self.can_stop_here:
                self.stop()

    @property
    def can_stop_here(self) -> bool:
        """True if this thread may stop the recording."""
        return self.all_threads or self.phase is Phase.ENDED or self._thread == threading.get_ident()

    def _stop_and_release(self) -> None:
        """Stop Kineto, and release it also after an error."""
        try:
            self._stop_kineto()
        finally:
            self._release()

    def _stop_kineto(self) -> None:
        with private_names.kineto_silenced:
            self.autograd_profile.__exit__(None, None, None)
        _exit_guard.mark_stopped()
        hook, self._profile_hook = self._profile_hook, None
        if hook is not None and sys.getprofile() is None and self._thread == threading.get_ident():
            _restore_profile_hook(hook)

    def _unprepare(self) -> None:
        # If another profiler is running by now, its prepare has replaced this one, and there is nothing to undo.
        """Start and stop a prepared Kineto, because it stays prepared otherwise."""
        with contextlib.suppress(ProfilerStateError):
            if self._has_device():
                self.start(self.options)
                self._stop_and_release()

    def _has_device(self) -> bool:
        return self.autograd_profile.use_device is not None

    @contextlib.contextmanager
    def _release_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._release()
            raise

    def _claim(self) -> None:
        """Make this the session that uses Kineto; raise `ProfilerStateError` if there is another one."""
        global _current_session
        _check_not_taken(None if _current_session is None else _current_session())
        _current_session = weakref.ref(self)

    def _release(self) -> None:
        """Return to idle, and let other sessions use Kineto."""
        global _current_session
        self.phase = Phase.IDLE
        start_patch, self._start_patch = self._start_patch, None
        if start_patch is not None:
            start_patch.restore()
        if _current_session is not None and _current_session() in (self, None):
            _current_session = None

    def _is_recording_lost(self) -> bool:
        """Return whether another profiler has replaced or ended this recording, so that it cannot be saved."""
        if not self._is_replaced and (self.all_threads or private_names.records_on_this_thread()):
            return False
        _exit_guard.mark_stopped()
        warnings.warn("Another profiler was started while this one recorded, so the window is lost.", stacklevel=4)
        return True

    def _make_autograd_profile(self) -> Any:
        options = self.options
        arguments = {
            "use_kineto": True,
            "use_cpu": options.use_cpu,
            "use_device": options.use_device,
            "experimental_config": options.experimental_config,
            **options.flags,
        }
        arguments |= _optional_argument("custom_trace_id_callback", options.trace_id_callback)
        arguments |= _optional_argument("post_processing_timeout_s", options.post_processing_timeout_s)
        arguments |= _optional_argument("activity_filters", options.activity_filters or None)
        return autograd_profiler.profile(**arguments)


def _freeze_trace_id(autograd_profile: Any) -> None:
    """Create the id of a window when the profiler warms up, as torch does; Kineto may be prepared later."""
    if hasattr(autograd_profile, "create_trace_id"):  # since torch 2.7
        trace_id = autograd_profile.create_trace_id()
        autograd_profile.trace_id = trace_id
        autograd_profile.create_trace_id = lambda: trace_id


class _ExitGuard:
    """Prevents hangs and crashes at the exit of this process, and of its forked children, once Kineto has recorded."""

    def __init__(self) -> None:
        self._pid = 0

    def mark_started(self) -> None:
        """Register the start of a recording."""
        skip_handlers_in_forks()
        self._pid = os.getpid()

    def mark_stopped(self) -> None:
        """Register the end of a recording."""
        self._pid = 0

    def run_at_exit(self) -> None:
        """Skip torch's destructors at exit if Kineto still records on a thread that alone could stop it."""
        if self._pid == os.getpid():
            early_exit.skip_handlers()


_exit_guard = _ExitGuard()
atexit.register(_exit_guard.run_at_exit)  # handlers registered later, which end recordings, run before it


def _check_not_taken(current: Session | None) -> None:
    if current is not None and current.phase is not Phase.IDLE:
        raise _make_busy_error()
    _check_nothing_records()


def _restore_profile_hook(hook: Any) -> None:
    """Set the hook of `sys.setprofile` again; restart cProfile, a C hook that Python code cannot set."""
    if callable(hook):
        sys.setprofile(hook)
    elif (module := sys.modules.get("cProfile")) and isinstance(hook, module.Profile):
        hook.disable()  # it missed the returns of the functions it was in
        hook.enable()


def _check_nothing_records() -> None:
    """Raise `ProfilerStateError` if any torch profiler records."""
    if autograd_profiler._is_profiler_enabled or private_names.records_on_this_thread():
        raise _make_busy_error()


def _make_busy_error() -> ProfilerStateError:
    return ProfilerStateError(
        "Another torch profiler is running in this process, and Kineto records for one at a time. Stop that one "
        "first, or do not start this one."
    )


def _optional_argument(name: str, value: Any) -> dict[str, Any]:
    """Return the argument if it is not None.

    Raises:
        SettingsError: This torch does not have the argument.
    """
    if value is None:
        return {}
    if name not in inspect.signature(autograd_profiler.profile).parameters:
        raise SettingsError(f"torch {torch.__version__} does not have {name}; torch 2.13 does. Leave it out.")
    return {name: value}


def _without_trace_only(config: Any) -> Any:
    config = copy.copy(config)
    config.trace_only = False
    return config


def import_compiler() -> None:
    """Import torch's compiler, as torch's own profiler does before it records.

    Otherwise its first use inside a window, such as the first optimizer's, is recorded with a million Python frames.
    """
    with contextlib.suppress(Exception):  # a torch without it, or one that it cannot be imported into
        importlib.import_module("torch._inductor.config")
        importlib.import_module("torch._dynamo")


def uses_cuda_graphs() -> bool:
    """Return whether torch's compiler, if it is imported, makes CUDA graphs."""
    config = sys.modules.get("torch._inductor.config")
    return config is not None and bool(config.triton.cudagraphs)


def keep_cupti_alive() -> bool:
    """Configure Kineto by environment variables not to tear CUPTI down; return False if this CUDA does not need it.

    Before CUDA 12.6, tearing CUPTI down while CUDA graphs exist would crash.
    """
    version = torch.version.cuda
    if version is None or tuple(map(int, version.split(".")[:2])) >= (12, 6):
        return False
    os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
    os.environ["TEARDOWN_CUPTI"] = "0"
    return True
