"""torch: a finished window. Kineto's results flow in once; traces, tables and stacks flow out, as often as asked."""

import inspect
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from torch._C._profiler import ProfilerState
from torch.autograd.profiler_util import EventList, FunctionEvent

from kinetoscope.errors import NothingRecordedError, ProfilerStateError
from kinetoscope.torch.collector import collector_at_rest
from kinetoscope.torch.event_columns import EventColumns, read_columns
from kinetoscope.torch.events import WindowEvents, list_events, torch_is_known
from kinetoscope.torch.export import copy_trace, rewrite_trace
from kinetoscope.torch.key_averages import Grouping, average_events
from kinetoscope.torch.kineto_stream import kineto_stream, second_stream
from kinetoscope.torch.kineto_text import KinetoText, read_text
from kinetoscope.torch.memory_timeline import MemoryTimeline, build_memory_timeline
from kinetoscope.torch.metadata import decode_all
from kinetoscope.torch.stacks import stack_lines
from kinetoscope.torch.true_names import NamesBySpan, TrueNames, find_true_names, note_names, odd_names
from kinetoscope.writing.atomic_file import atomic_file


class Window:
    """What was recorded between one start and stop."""

    def __init__(self, autograd_profile: Any) -> None:
        self.autograd_profile = autograd_profile
        self.kineto_results = autograd_profile.kineto_results
        self.trace_id: str = getattr(autograd_profile, "trace_id", "")
        self._text: KinetoText | None = None
        self._true_names = TrueNames()

    @property
    def has_stacks(self) -> bool:
        """Whether Python's frames were recorded."""
        return bool(self.autograd_profile.with_stack)

    @property
    def memory_device(self) -> str:
        """The device whose memory is looked at when nobody names one."""
        device = self.autograd_profile.use_device
        if device and device != "cuda":
            return f"{device}:0"
        return "cuda:0" if torch.cuda.is_available() else "cpu"

    @property
    def is_plain(self) -> bool:
        """Whether the columns serve: not with the old ways to time a device, nor with a bound on the time."""
        profile = self.autograd_profile
        kept_whole = getattr(profile, "post_processing_timeout_s", None) is None
        return kept_whole and profile.profiler_kind == ProfilerState.KINETO

    @cached_property
    def columns(self) -> EventColumns:
        """The events, read at the first look."""
        self._check_events()
        with collector_at_rest():
            return read_columns(self.kineto_results, self.autograd_profile.use_device)

    @cached_property
    def _listed(self) -> tuple[WindowEvents, EventList]:
        begin_ns = perf_counter_ns()
        columns = self.columns
        read_ns = perf_counter_ns()
        listed = list_events(columns, **list_options(self))
        stats = self.autograd_profile._stats  # as torch keeps them of its own events
        stats.parse_kineto_call_duration_us = max(1, (read_ns - begin_ns) // 1000)
        stats.function_events_build_tree_call_duration_us = max(1, (perf_counter_ns() - read_ns) // 1000)
        stats.number_of_events = len(listed[1])
        return listed

    def events(self) -> EventList:
        """The events as torch's objects; torch makes them itself where the columns do not serve."""
        self._check_events()
        return self._listed[1] if self.is_plain and torch_is_known() else self.autograd_profile.function_events

    def event_at(self, index: int) -> FunctionEvent:
        """The object of the event at an index of the columns."""
        if torch_is_known():
            return self._listed[0].by_index[index]
        place = sum(1 for other in self.columns.shown() if other < index)
        return self.events()[place]

    def text(self, folder: Path, pipes: Path | None) -> KinetoText:
        """What Kineto saved, which it does at the first call; by way of the folders that `kineto_stream` asks for."""
        if self._text is None:
            names_are_odd = bool(odd_names)
            if names_are_odd:
                self._true_names = find_true_names(self.kineto_results)
            text = self._read_text(folder, pipes)
            if not names_are_odd and text.may_be_renamed:
                self._true_names = find_true_names(self.kineto_results)
                if self._true_names.by_span:
                    text = replace(text, is_right=False)
                else:
                    note_names(text.doubtful_names)
            self._text = text
        return self._text

    def _read_text(self, folder: Path, pipes: Path | None) -> KinetoText:
        try:
            with kineto_stream(self.kineto_results, folder, pipes) as stream:
                return read_text(stream, self._true_names.in_order)
        except ProfilerStateError as error:
            with second_stream(self.kineto_results, folder, error) as stream:
                return read_text(stream, None)

    def source(self, folder: Path, pipes: Path | None) -> tuple[KinetoText, NamesBySpan]:
        """What Kineto saved, and the true names of what it calls otherwise."""
        return self.text(folder, pipes), self._true_names.by_span

    def _check_events(self) -> None:
        if getattr(self.autograd_profile.experimental_config, "trace_only", False):
            raise ProfilerStateError(
                "There are no events() and no tables: with trace_only, Kineto keeps only the trace. Record without it, "
                "or use export_chrome_trace()."
            )


class KinetoResults:
    """What one window recorded, on its own: any thread may export it, any number of times, while others record.

    With ``acc_events`` it is all ``windows`` so far, the oldest first. ``metadata`` maps names to JSON texts, which
    go into the header of every trace exported from then on.
    """

    def __init__(self, windows: list[Window], metadata: Mapping[str, str]) -> None:
        self.windows = windows
        self.metadata = dict(metadata)
        self.trace_id = windows[-1].trace_id
        self._lock = threading.Lock()

    def export_chrome_trace(self, path: str | os.PathLike[str], *, temporary_folder: Path | None = None) -> None:
        """Writes the window as a Chrome trace, compressed if ``path`` ends in ``.gz``.

        Folders are made as needed. The file appears when it is complete; it is valid JSON, its strings are those
        that were recorded, and the spans of a track nest. Raises `FolderNotWritableError` where it cannot be
        written; exporting again, there or elsewhere, is always possible. What is needed on the way goes into
        ``temporary_folder``, by default among the system's temporary files or, where it may be large, beside ``path``.
        """
        target = Path(os.fspath(path))
        header = {"traceName": target.name, "trace_id": self.trace_id, **decode_all(self.metadata)}
        with self._lock:
            folders = temporary_folder or target.parent, temporary_folder
            sources = [window.source(*folders) for window in reversed(self.windows)]
            if len(sources) == 1 and sources[0][0].is_right:
                copy_trace(sources[0][0], target, header)
            else:
                rewrite_trace(sources, target, header)

    def events(self) -> EventList:
        """The events as torch's `FunctionEvent` objects. Raises RuntimeError if only the trace was recorded.

        Of several windows, the events of the newest come first, as torch has them.
        """
        newest, *older = reversed(self.windows)
        if not older:
            return newest.events()
        together = EventList(newest.events(), **list_options(newest))
        for window in older:
            together.extend(window.events())
        together._tree_built = True
        return together

    def key_averages(self, grouping: Grouping | None = None) -> EventList:
        """The events added up by operator, and by what ``grouping`` tells apart."""
        grouping = grouping or Grouping()
        if not all(window.is_plain for window in self.windows):
            return self._torchs_key_averages(grouping)
        columns = [(window.columns, window.event_at) for window in reversed(self.windows)]
        options = list_options(self.windows[-1])
        return average_events(
            columns, grouping, profile_memory=options["profile_memory"], with_flops=options["with_flops"]
        )

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Writes the stacks with the microseconds of ``metric``, a line each, as flame graph tools read them."""
        if not all(window.has_stacks for window in self.windows):
            raise NothingRecordedError("No stacks were recorded, so there are none to export. Use with_stack=True.")
        lines = [
            line
            for window in reversed(self.windows)
            for line in stack_lines(window.columns, metric, window.kineto_results)
        ]
        with atomic_file(Path(os.fspath(path))) as stream:
            stream.writelines(lines)

    def memory_timeline(self, device: str | None = None) -> MemoryTimeline:
        """The memory of ``device`` over the window, the newest one with ``acc_events``.

        By default of the first device that was recorded beside the CPU, else ``cuda:0`` where there is CUDA, else
        ``cpu``.
        """
        window = self.windows[-1]
        return build_memory_timeline(window.kineto_results, device or window.memory_device)

    def _torchs_key_averages(self, grouping: Grouping) -> EventList:
        events = self.events()
        if not grouping.include_python_functions:
            kept = EventList((it for it in events if not it.is_python_function), **list_options(self.windows[-1]))
            kept._tree_built = True
            events = kept
        options = {"group_by_overload_name": grouping.by_overload_name, "include_python_functions": True}
        known = inspect.signature(EventList.key_averages).parameters  # older versions of torch lack these
        options = {name: value for name, value in options.items() if name in known}
        return events.key_averages(grouping.by_input_shape, grouping.by_stack_n, **options)


def list_options(window: Window) -> dict[str, Any]:
    """The options of torch's `EventList` for the events of a window."""
    profile = window.autograd_profile
    return {
        "use_device": profile.use_device,
        "profile_memory": profile.profile_memory,
        "with_flops": profile.with_flops,
    }
