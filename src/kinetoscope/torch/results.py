"""torch: a finished window. Kineto's results flow in once; traces, tables and stacks flow out, as often as asked."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.autograd.profiler_util import EventList

from kinetoscope.torch.export import KinetoFile, copy_trace, split_valid
from kinetoscope.torch.metadata import decode_all
from kinetoscope.torch.repair import Faults, find_faults, rewrite_trace


class KinetoResults:
    """What one window recorded, on its own: any thread may export it, any number of times, while others record.

    ``metadata`` maps names to JSON texts, which go into the header of every trace exported from then on.
    """

    def __init__(self, autograd_profile: Any, metadata: Mapping[str, str]) -> None:
        self.autograd_profile = autograd_profile
        self.metadata = dict(metadata)
        # Taken now: with acc_events torch's object goes on to record the next window.
        self.kineto_results = autograd_profile.kineto_results
        self.trace_id: str = getattr(autograd_profile, "trace_id", "")
        self._file: KinetoFile | None = None
        self._faults: Faults | None = None
        self._lock = threading.Lock()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the window as a Chrome trace, compressed if ``path`` ends in ``.gz``.

        Folders are made as needed. The file appears when it is complete; it is valid JSON, its strings are those
        that were recorded, and the spans of a track nest. Raises `FolderNotWritableError` where it cannot be
        written; exporting again, there or elsewhere, is always possible.
        """
        target = Path(os.fspath(path))
        header = {"traceName": target.name, "trace_id": self.trace_id, **decode_all(self.metadata)}
        with self._lock:
            faults, file = self._saved(target.parent)
            parts = None if faults or self._may_overlap() else split_valid(file.content)
            if parts is None:
                rewrite_trace(file.path, faults.changed_names, target, header)
            else:
                copy_trace(file.content, parts, target, header)

    def events(self) -> EventList:
        """The events as torch's `FunctionEvent` objects. Raises RuntimeError if only the trace was recorded."""
        return self.autograd_profile.function_events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The events added up by operator, and by input shapes, frames of the stack and overload as asked for."""
        options = (group_by_overload_name,) if group_by_overload_name else ()  # older versions of torch lack it
        return self.events().key_averages(group_by_input_shape, group_by_stack_n, *options)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Writes the stacks with the microseconds of ``metric``, a line each, as flame graph tools read them."""
        self.autograd_profile.export_stacks(os.fspath(path), metric)

    def _saved(self, folder: Path) -> tuple[Faults, KinetoFile]:
        """Kineto's own file and what is wrong with it, made at the first export."""
        if self._faults is None:
            self._faults = find_faults(self.kineto_results)
        if self._file is None:
            self._file = KinetoFile(self.kineto_results, folder, self._faults.raw_names())
        return self._faults, self._file

    def _may_overlap(self) -> bool:
        """Whether there are tracks that the search for faults does not see."""
        profile = self.autograd_profile
        trace_only = getattr(profile.experimental_config, "trace_only", False)
        return bool(profile.use_device or profile.with_stack or trace_only)
