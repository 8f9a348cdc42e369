"""Finished windows, from which traces, tables and stacks can be made any number of times."""

import inspect
import os
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from torch.autograd.profiler_util import EventList, FunctionEvent

from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.errors import NothingRecordedError, ProfilerStateError
from kinetoscope.formats.trace_redaction import Replace
from kinetoscope.recording.window.gc_control import pause_gc
from kinetoscope.torch.event_columns import EventColumns, read_columns
from kinetoscope.torch.events import WindowEvents, has_all_torch_attributes, list_events
from kinetoscope.torch.export import copy_trace, rewrite_trace
from kinetoscope.torch.key_averages import Grouping, average_events
from kinetoscope.torch.kineto_stream import has_python_exporter, open_kineto_stream, open_python_stream
from kinetoscope.torch.kineto_text import KinetoText, read_text
from kinetoscope.torch.memory_timeline import MemoryTimeline, build_memory_timeline
from kinetoscope.torch.metadata import decode_values
from kinetoscope.torch.original_names import (
    NamesBySpan,
    OriginalNames,
    altered_names,
    find_original_names,
    register_names,
)
from kinetoscope.torch.stacks import format_stack_lines


class Window:
    """Recording between one start and stop."""

    def __init__(self, autograd_profile: Any) -> None:
        self.autograd_profile = autograd_profile
        self.kineto_results = autograd_profile.kineto_results
        self.trace_id: str = getattr(autograd_profile, "trace_id", "")
        self._text: KinetoText | None = None
        self._original_names = OriginalNames()

    @property
    def has_stacks(self) -> bool:
        """True if Python frames were recorded."""
        return bool(self.autograd_profile.with_stack)

    @property
    def memory_device(self) -> str:
        """Default device for a memory timeline."""
        device = self.autograd_profile.use_device
        if device and device != "cuda":
            return f"{device}:0"
        return "cuda:0" if torch.cuda.is_available() else "cpu"

    @property
    def has_columns(self) -> bool:
        """True if events can be read as columns: not with torch's older ways to time a device, or a timeout."""
        profile = self.autograd_profile
        has_timeout = getattr(profile, "post_processing_timeout_s", None) is not None
        return profile.profiler_kind.name == "KINETO" and not has_timeout

    @cached_property
    def columns(self) -> EventColumns:
        """Events, read at the first access."""
        self._check_events()
        with pause_gc():
            return read_columns(self.kineto_results, self.autograd_profile.use_device)

    @cached_property
    def _event_list(self) -> tuple[WindowEvents, EventList]:
        begin_ns = perf_counter_ns()
        columns = self.columns
        read_ns = perf_counter_ns()
        listed = list_events(columns, **event_list_options(self))
        stats = self.autograd_profile._stats  # torch's own numbers of the same work
        stats.parse_kineto_call_duration_us = max(1, (read_ns - begin_ns) // 1000)
        stats.function_events_build_tree_call_duration_us = max(1, (perf_counter_ns() - read_ns) // 1000)
        stats.number_of_events = len(listed[1])
        return listed

    def events(self) -> EventList:
        """Return the events as torch's objects; torch makes them itself where `WindowEvent` would lack something."""
        self._check_events()
        return (
            self._event_list[1]
            if self.has_columns and has_all_torch_attributes()
            else self.autograd_profile.function_events
        )

    def event_at(self, index: int) -> FunctionEvent:
        """Return the object of the event at an index of the columns."""
        if has_all_torch_attributes():
            return self._event_list[0].event(index)
        position = sum(1 for other in self.columns.shown_indexes() if other < index)
        return self.events()[position]

    def text(self, folder: Path, pipe_folder: Path | None, *, use_python_export: bool = False) -> KinetoText:
        """Return the text that Kineto saves at the first call.

        Args:
            folder: Folder of temporary files, as in `open_kineto_stream`.
            pipe_folder: Folder of the named pipe, as in `open_kineto_stream`.
            use_python_export: Read the window through torch's exporter in Python, if there is one, because Kineto saves
                once.
        """
        if self._text is None:
            names_were_read = bool(altered_names)
            if names_were_read:
                self._original_names = find_original_names(self.kineto_results)
            text = self._read_text(folder, pipe_folder, use_python_export)
            if not names_were_read and text.may_have_changed_names:
                self._original_names = find_original_names(self.kineto_results)
                if self._original_names.by_span:
                    text = text.correct_names(self._original_names.by_span)
                else:
                    register_names(text.maybe_changed_names)
            self._text = text
        return self._text

    def _read_text(self, folder: Path, pipe_folder: Path | None, use_python_export: bool) -> KinetoText:
        if use_python_export and has_python_exporter():
            with open_python_stream(self.kineto_results, folder) as stream:
                return read_text(stream, None)
        try:
            with open_kineto_stream(self.kineto_results, folder, pipe_folder) as stream:
                return read_text(stream, self._original_names.in_order)
        except ProfilerStateError as error:
            if not has_python_exporter():
                raise error from None
            with open_python_stream(self.kineto_results, folder) as stream:
                return read_text(stream, None)

    def text_and_names(
        self, folder: Path, pipe_folder: Path | None, *, use_python_export: bool = False
    ) -> tuple[KinetoText, NamesBySpan]:
        """Return the result of `text`, and the original names of the spans that Kineto misspells."""
        return self.text(folder, pipe_folder, use_python_export=use_python_export), self._original_names.by_span

    def _check_events(self) -> None:
        if getattr(self.autograd_profile.experimental_config, "trace_only", False):
            raise ProfilerStateError(
                "There are no events() and no tables, because trace_only keeps only the trace. Record without it, or "
                "use export_chrome_trace()."
            )


class KinetoResults:
    """Results of one window, which any thread may export any number of times, also while another window is recorded.

    Attributes:
        windows: One window; with ``acc_events``, all windows so far, oldest first.
        metadata: JSON strings by name, which go into the header of every trace exported afterwards.
    """

    def __init__(self, windows: list[Window], metadata: Mapping[str, str]) -> None:
        self.windows = windows
        self.metadata: dict[str, str] = dict(metadata)
        self.trace_id: str = windows[-1].trace_id
        self._lock = threading.Lock()

    def export_chrome_trace(
        self,
        path: str | os.PathLike[str],
        *,
        temporary_folder: Path | None = None,
        redact: Replace | None = None,
        use_python_export: bool = False,
    ) -> None:
        """Write the window as a Chrome trace, compressed if ``path`` ends in ``.gz``.

        Folders are made as needed. The file appears when it is complete: valid JSON, with the strings that were
        recorded, and nested spans on each track. Exporting again, to the same or another path, is always possible.

        Args:
            path: The file to write.
            temporary_folder: Folder for temporary files; by default small ones go into the system's folder for them,
                large ones next to ``path``.
            redact: Returns the replacement of each string; None writes all strings unmodified.
            use_python_export: Leave Kineto's own save of the window to the user.

        Raises:
            FolderNotWritableError: The file cannot be written.
        """
        target = Path(os.fspath(path))
        header = {"traceName": target.name, "trace_id": self.trace_id, **decode_values(self.metadata)}
        with self._lock:
            folders = temporary_folder or target.parent, temporary_folder
            options = {"use_python_export": use_python_export}
            sources = [window.text_and_names(*folders, **options) for window in reversed(self.windows)]
            if len(sources) == 1 and sources[0][0].is_valid:
                copy_trace(sources[0][0], target, header, redact)
            else:
                rewrite_trace(sources, target, header, redact)

    def events(self) -> EventList:
        """Return the events as torch's `FunctionEvent` objects, the newest window's first, as in torch.

        Raises:
            RuntimeError: Only the trace was recorded.
        """
        newest, *older = reversed(self.windows)
        if not older:
            return newest.events()
        together = EventList(newest.events(), **event_list_options(newest))
        for window in older:
            together.extend(window.events())
        together._tree_built = True
        return together

    def key_averages(self, grouping: Grouping | None = None) -> EventList:
        """Return the events summed by operator and by the properties of ``grouping``."""
        grouping = grouping or Grouping()
        if not all(window.has_columns for window in self.windows):
            return self._stock_key_averages(grouping)
        columns = [(window.columns, window.event_at) for window in reversed(self.windows)]
        options = event_list_options(self.windows[-1])
        return average_events(
            columns, grouping, profile_memory=options["profile_memory"], with_flops=options["with_flops"]
        )

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write a line for each stack, with the microseconds of ``metric``, for flame graph tools."""
        if not all(window.has_stacks for window in self.windows):
            raise NothingRecordedError("No stacks were recorded, so none can be exported. Use with_stack=True.")
        lines = [
            line
            for window in reversed(self.windows)
            for line in format_stack_lines(window.columns, metric, window.kineto_results)
        ]
        with atomic_file(Path(os.fspath(path))) as stream:
            stream.writelines(lines)

    def memory_timeline(self, device: str | None = None) -> MemoryTimeline:
        """Return the memory of ``device`` over the window; with ``acc_events``, over the newest one.

        The default is the recorded device, else ``cuda:0`` if CUDA is available, else ``cpu``.
        """
        window = self.windows[-1]
        return build_memory_timeline(window.kineto_results, device or window.memory_device)

    def _stock_key_averages(self, grouping: Grouping) -> EventList:
        """Return torch's own table, where events cannot be read as columns."""
        events = self.events()
        if not grouping.include_python_functions:
            kept = EventList(
                (event for event in events if not event.is_python_function), **event_list_options(self.windows[-1])
            )
            kept._tree_built = True
            events = kept
        options = {"group_by_overload_name": grouping.by_overload_name, "include_python_functions": True}
        known = inspect.signature(EventList.key_averages).parameters  # older torch lacks some
        options = {name: value for name, value in options.items() if name in known}
        return events.key_averages(grouping.by_input_shape, grouping.by_stack_n, **options)


def event_list_options(window: Window) -> dict[str, Any]:
    """Return the options of torch's `EventList` for the events of a window."""
    profile = window.autograd_profile
    return {
        "use_device": profile.use_device,
        "profile_memory": profile.profile_memory,
        "with_flops": profile.with_flops,
    }
