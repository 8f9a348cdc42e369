"""Profiler without a schedule: records from start to stop, and keeps the last finished window."""

# torch.autograd does not export all that its own profiler uses.
# pyright: reportPrivateImportUsage=false

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler_util import EventList
from torch.profiler import ProfilerActivity

import kinetoscope.torch.private_names as private_names
from kinetoscope.core.text.wording import format_missing_options
from kinetoscope.errors import NothingRecordedError, ProfilerStateError, SettingsError
from kinetoscope.native import require_extension
from kinetoscope.torch.key_averages import INCLUDES_PYTHON_FUNCTIONS, Grouping
from kinetoscope.torch.memory_timeline import MemoryTimeline
from kinetoscope.torch.metadata import check_json, distributed_info, encode_value, send_to_kineto
from kinetoscope.torch.results import KinetoResults, Window
from kinetoscope.torch.session import (
    Activity,
    RecordingOptions,
    Session,
    import_compiler,
    keep_cupti_alive,
    select_activities,
    uses_cuda_graphs,
)

# A global, because torch.profiler has it as ``_WARNINGS_SHOWN``, and its users clear it to be warned again.
WARNINGS_SHOWN: set[str] = set()


class KinetoProfile:
    """Record from `start` to `stop`; the base of `profile`, which adds the schedule.

    It takes the arguments of `profile` that do not concern the schedule.
    """

    def __init__(
        self,
        *,
        activities: Iterable[Activity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        # Programs set these attributes too, so each recording reads them again.
        selection = select_activities(activities)
        self.activities: set[ProfilerActivity] = selection.activities
        self.activity_filters: dict[ProfilerActivity, set[str]] = selection.filters
        self.use_device: str | None = selection.device()
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.experimental_config: Any = experimental_config
        self.post_processing_timeout_s = post_processing_timeout_s
        self.custom_trace_id_callback = custom_trace_id_callback
        self.acc_events = acc_events
        self._custom_profiler_config = self._options().custom_profiler_config
        if "cupti_monitor" in (*self._custom_profiler_config, self._custom_profiler_config.get("backend")):
            warnings.warn("cupti_monitor is not supported: Kineto records what it always records.", stacklevel=3)
        self._session = Session()
        self._has_started = False
        self._is_lost = False
        self._results: KinetoResults | None = None
        self.execution_trace_observer = execution_trace_observer
        self.has_cudagraphs: bool = False
        self.mem_tl: MemoryTimeline | None = None
        self.preset_metadata: dict[str, str] = {}
        self._trace_metadata: dict[str, str] = {}
        self._next_metadata: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        if self._has_started:
            raise ProfilerStateError("A torch profiler cannot be pickled or copied once it has been started.")
        return {name: value for name, value in vars(self).items() if name != "_session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._session = Session()

    def _options(self) -> RecordingOptions:
        """Return the options that the attributes have now."""
        options = RecordingOptions(
            use_cpu=ProfilerActivity.CPU in self.activities,
            use_device=self.use_device,
            activity_filters=self.activity_filters,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
            experimental_config=self.experimental_config,
            post_processing_timeout_s=self.post_processing_timeout_s,
            trace_id_callback=self.custom_trace_id_callback,
        )
        self.experimental_config = options.experimental_config
        return options

    @property
    def profiler(self) -> Any:
        """Object of torch for the current or last recording; None before the first and after `pop_results`."""
        return self._session.autograd_profile

    @profiler.setter
    def profiler(self, value: None) -> None:
        """Drop the recording when set to None."""
        if value is not None:
            raise SettingsError(f"profiler can only be set to None, which drops what was recorded, not to {value!r}.")
        if self._session.recording:
            raise ProfilerStateError("The profiler is recording, so profiler cannot be set to None. Stop it first.")
        self.pop_results()
        self._session.drop_profile()

    def start(self) -> None:
        """Start recording.

        Raises:
            ProfilerStateError: Another torch profiler runs in this process.
            NativeExtensionError: The native extension, which writes the results, cannot be used.
        """
        require_extension()
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        """Stop recording; do nothing if the recording has been stopped."""
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Prepare Kineto, so that the start takes less time."""
        if self.with_stack:
            import_compiler()
        self.has_cudagraphs = uses_cuda_graphs()
        if self.profiler is not None and not self.acc_events:
            warn_once(
                "Profiler clears events at the end of each cycle: tables and exports show the last finished one. "
                "Set acc_events=True to keep the events of all cycles."
            )
        self._session.prepare(self._options())

    def start_trace(self) -> None:
        """Start a window."""
        self._has_started = True
        observer = self.execution_trace_observer
        if observer:
            observer.start()
        try:
            self._session.start(self._options())
        except BaseException:
            if observer:
                observer.stop()
            raise
        if threading.current_thread() is not threading.main_thread():
            _thread_local.end = _ThreadExitHook(self)
        self._describe_window()

    def stop_trace(self) -> None:
        """End the window; its results can then be exported, tabulated and taken.

        Raises:
            NothingRecordedError: No window was ever started. It is an AssertionError.
        """
        self._check_started()
        self._session.check_thread()
        if self.execution_trace_observer:
            self.execution_trace_observer.stop()
        was_recording = self._session.recording
        recorded = self._session.stop()
        if was_recording:  # ``recorded`` is None if the window was lost; the previous one is not delivered again
            earlier = self._results.windows if self.acc_events and self._results else []
            self._is_lost = recorded is None
            self._results = recorded and KinetoResults([*earlier, Window(recorded)], self._trace_metadata)

    def pop_results(self) -> KinetoResults | None:
        """Return the last finished window and drop it from this profiler; None if there is none.

        With ``acc_events`` these are all windows so far, and accumulating starts again.
        """
        results, self._results = self._results, None
        if results is not None and self.profiler is results.windows[-1].autograd_profile:
            self._session.drop_profile()
        return results

    def export_chrome_trace(self, path: str | os.PathLike[str], use_python_export: bool = False) -> None:
        """Write the last finished window as a Chrome trace; see `KinetoResults.export_chrome_trace`.

        With ``use_python_export``, torch's exporter in Python reads the window, where torch has one, so that Kineto's
        ``save()`` of it is still possible.
        """
        self._require_results("export").export_chrome_trace(path, use_python_export=use_python_export)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write the stacks of the last finished window with the microseconds of ``metric``."""
        self._require_results("export stacks of").export_stacks(path, metric)

    def memory_timeline(self, device: str | None = None) -> MemoryTimeline:
        """Return the memory of ``device`` over the last finished window, by category.

        Args:
            device: Such as ``cuda:0``. The default is the recorded device, else ``cuda:0`` if CUDA is available, else
                ``cpu``.

        Raises:
            SettingsError: ``record_shapes``, ``profile_memory`` or ``with_stack`` is off.
        """
        self._check_memory_options()
        return self._require_results("make a memory timeline of").memory_timeline(device)

    def export_memory_timeline(self, path: str | os.PathLike[str], device: str | None = None) -> None:
        """Write `memory_timeline` to ``path``, in the format of its suffix.

        ``.html`` is a web page, ``.raw.json.gz`` a list of all changes; any other suffix gives ``[times, [sizes by
        category]]`` as JSON, compressed if it is ``.json.gz``.
        """
        self.mem_tl = self.memory_timeline(device)
        self.mem_tl.save(Path(os.fspath(path)))

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        include_python_functions: bool = INCLUDES_PYTHON_FUNCTIONS,
    ) -> EventList:
        """Return the events of the last finished window, or of all with ``acc_events``, summed by operator.

        The ``group_by`` arguments divide the rows further. ``include_python_functions`` selects whether Python frames
        are among the rows; its default is that of the installed torch.
        """
        grouping = Grouping(
            by_input_shape=group_by_input_shape,
            by_stack_n=group_by_stack_n,
            by_overload_name=group_by_overload_name,
            include_python_functions=include_python_functions,
        )
        return self._require_results("make a table of").key_averages(grouping)

    def events(self) -> EventList:
        """Return the events of the last finished window.

        Raises:
            RuntimeError: Only the trace was recorded.
        """
        return self._require_results("list the events of").events()

    def add_metadata(self, key: str, value: Any) -> None:
        """Put ``value``, anything that JSON can represent, into the header of the trace.

        It goes to the window that is being recorded, else to the last finished one, else to the next.

        Raises:
            SettingsError: JSON cannot represent the value.
        """
        self._put_metadata(key, encode_value(key, value))

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add metadata as `add_metadata` does, from a JSON string.

        Raises:
            SettingsError: The value is not JSON.
        """
        self._put_metadata(key, check_json(key, value))

    def preset_metadata_json(self, key: str, value: str) -> None:
        """Put ``value``, a JSON string, into the header of every window that starts from now on."""
        self.preset_metadata[key] = check_json(key, value)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Switch activities on or off during a recording; do nothing at other times."""
        if self._session.recording:
            self.profiler.toggle_collection_dynamic(enable, activities)

    def set_custom_trace_id_callback(self, callback: Callable[[], str] | None) -> None:
        """Set the function that returns each window's id, from the next window on."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """Return the id of the current or last window; None before the first and after `pop_results`."""
        return None if self.profiler is None else self.profiler.trace_id

    def _require_results(self, purpose: str) -> KinetoResults:
        """Return the finished results; raise `NothingRecordedError` if there are none."""
        if self._results is None and self._is_lost:
            raise NothingRecordedError(
                f"Nothing to {purpose}: the window was lost, because another profiler was started while this "
                "one recorded. Record again, and start no other profiler meanwhile."
            )
        if self._results is None:
            raise NothingRecordedError(
                f"Nothing to {purpose} yet: no window is finished. Do it in on_trace_ready, or after stop()."
            )
        return self._results

    def _check_started(self) -> None:
        if not self._has_started:
            raise NothingRecordedError("The profiler has not been started. Call start() first.")

    def end_on_thread_exit(self) -> None:
        """End the recording on its exiting thread, since no other can stop Kineto; `stop_trace` takes it."""
        self._session.end_on_thread_exit()

    def _discard_preparation(self) -> None:
        self._session.stop()

    def _describe_window(self) -> None:
        """Put options, distributed info and the user's metadata into the window's header."""
        self._trace_metadata = {}
        metadata = {name: "1" for name, is_on in self._session.options.flags.items() if is_on}
        info = self._get_distributed_info()
        if info:
            metadata["distributedInfo"] = encode_value("distributedInfo", info)
        if self.has_cudagraphs and keep_cupti_alive():
            metadata["DISABLE_CUPTI_LAZY_REINIT"] = "1"
        metadata |= self.preset_metadata | self._next_metadata
        self._next_metadata = {}
        for key, text in metadata.items():
            self._put_metadata(key, text)

    def _put_metadata(self, key: str, text: str) -> None:
        """Put metadata into the current window, else the last finished one, else the next."""
        if self._session.recording:
            self._trace_metadata[key] = text
            send_to_kineto(key, text)
        elif self._results is not None:
            self._results.metadata[key] = text
        else:
            self._next_metadata[key] = text

    def _get_distributed_info(self) -> dict[str, Any] | None:
        return distributed_info()

    def _memory_profile(self) -> Any:
        """Return torch's memory profile of the last finished window; Kinetoscope's is `memory_timeline`."""
        self._check_memory_options()
        return private_names.MemoryProfile(
            self._require_results("make a memory timeline of").windows[-1].kineto_results
        )

    def _check_memory_options(self) -> None:
        recorded = self._options() if self._results is None else self._session.options
        names = ("record_shapes", "profile_memory", "with_stack")
        if needed := format_missing_options({name: getattr(recorded, name) for name in names}):
            raise SettingsError(f"{needed} required for memory profiling.")  # torch's own tests expect these words

    def _stats(self) -> Any:
        return None if self.profiler is None else self.profiler._stats


class _ThreadExitHook:
    """Ends a profiler's recording when the thread that started it exits, which frees thread-local objects."""

    def __init__(self, profiler: KinetoProfile) -> None:
        self._profiler = weakref.ref(profiler)
        self._number = profiler._session.num_started

    def __del__(self) -> None:
        profiler = self._profiler()
        if profiler is not None and profiler._session.num_started == self._number:
            profiler.end_on_thread_exit()


_thread_local = threading.local()


def warn_once(message: str) -> None:
    """Warn, unless this process has given the same warning before."""
    if message not in WARNINGS_SHOWN:
        WARNINGS_SHOWN.add(message)
        warnings.warn(message, stacklevel=4)


def kineto_available() -> bool:
    """Return whether this build of torch has Kineto."""
    return torch.autograd.kineto_available()
