"""Objects that retain more tensors with every step of a window, and the line that adds them."""

import sys
import threading
from collections import deque
from types import FrameType
from typing import Any, NamedTuple

from kinetoscope.core.job.event import skippable
from kinetoscope.core.job.state import RunState
from kinetoscope.core.paths.source_files import is_user_code, source_name
from kinetoscope.formats.trace_names import MEMORY_HOLDER
from kinetoscope.recording.private_names import frame_of_thread
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.float64_tensors import Float64Tensors
from kinetoscope.sources.leak_lines import find_leak_line
from kinetoscope.sources.retained_objects import (
    ObjectKinds,
    RetainedObject,
    container_length,
    is_container,
    scan_objects,
)
from kinetoscope.sources.retained_tensors import (
    TensorReader,
    grows_each_step,
    make_tensor_reader,
    read_sequence_number,
    summarize_new_tensors,
)
from kinetoscope.sources.window_source import WindowSource

_MIN_NEW_ELEMENTS = 2
_MAX_STEPS_PER_ELEMENT = 20
_MAX_HOLDERS = 8
_MIN_TENSOR_SHARE = 0.25


class _Baseline(NamedTuple):
    """State at the first scan: container lengths by hash, autograd's sequence number, and the loop's function."""

    lengths: dict[int, int]
    sequence_number: int | None
    function: str | None
    is_complete: bool

    def growth(self, retained: RetainedObject) -> int:
        """Return the number of elements added since the first scan; 0 if the container is unknown."""
        length = container_length(retained.value, retained.kind)
        lengths_before = (self.lengths.get(key, length + 1) for key in _container_keys(retained))
        return next((length - length_before for length_before in lengths_before if length_before <= length), 0)


class GrowingMemory(WindowSource):
    """Find objects that retain tensors from step to step: a list of losses, a cache, a sum that keeps its graph.

    The objects that the functions around the loop reference (their variables, those of their modules, and all below)
    are scanned at the end of the window's first batch and when it closes. A container that got more tensors per step,
    or a tensor whose graph grew, is an instant of category ``memory_holder`` with its name, the number of tensors and,
    where it is unambiguous, the line that adds to it. Only lengths are kept between the scans.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = self._tid = self._num_steps = 0
        self._baseline: _Baseline | None = None

    def install(self, run: RunContext) -> None:
        """Store the loop's thread."""
        self._thread, self._tid = threading.get_ident(), threading.get_native_id()

    @skippable
    def batch_end(self, state: RunState, logger: Any) -> None:
        """Scan after the first batch of a window; count the steps after it."""
        if self._run is None:
            return
        if self._baseline is not None:
            self._num_steps += 1
        elif "torch.nn" in sys.modules and make_tensor_reader() is not None:
            self._scan_first(self._run)

    def finish(self, run: RunContext) -> None:
        """Scan again at the end of the window, if the loop's function is still running, and record what grew."""
        baseline, self._baseline = self._baseline, None
        num_steps, self._num_steps = self._num_steps, 0
        if baseline is None or not num_steps:
            return
        is_here = threading.get_ident() == self._thread
        # A local variable with this function's frame would be a reference cycle that keeps all locals alive.
        frame = sys._getframe().f_back if is_here else frame_of_thread(self._thread)
        if _user_function(frame) == baseline.function:  # else the loop's function has returned
            self._scan_last(run, frame, baseline, num_steps)

    def remove(self) -> None:
        """Drop the baseline."""
        self._baseline, self._num_steps = None, 0

    def _scan_first(self, run: RunContext) -> None:
        """Scan the loop's objects and keep the lengths of its containers."""
        frame = sys._getframe().f_back
        with scan_objects(run, frame) as scan:
            containers = (retained for retained in scan.objects if is_container(retained.kind))
            lengths = {
                key: container_length(retained.value, retained.kind)
                for retained in containers
                for key in _container_keys(retained)
            }
            self._baseline = _Baseline(lengths, read_sequence_number(), _user_function(frame), scan.is_complete)
            for source in run.sources:
                if isinstance(source, Float64Tensors):
                    run.call(source, source.record_float64, scan)

    def _scan_last(self, run: RunContext, frame: FrameType | None, baseline: _Baseline, num_steps: int) -> None:
        """Scan the loop's objects again and record those that grew."""
        reader = make_tensor_reader()
        if reader is None:
            return
        with scan_objects(run, frame) as scan:
            growth = _Growth(baseline, num_steps, read_sequence_number(), reader, scan.kinds)
            holders = [
                _location_args(retained) | args
                for retained in scan.objects
                if (args := growth.args_for(retained)) is not None
            ]
            holders.sort(key=lambda args: (args["graphs"], args["tensors"], args.get("bytes", 0)), reverse=True)
            for args in holders[:_MAX_HOLDERS]:
                self._record(run, f"memory holder {args['holder']}", args)
            counts = {"steps": num_steps, "holders": len(holders), "objects": len(scan.objects)}
            counts |= {"functions": scan.num_frames, "complete": int(baseline.is_complete and scan.is_complete)}
            self._record(run, "memory holders were scanned", counts)

    def _record(self, run: RunContext, name: str, args: dict[str, Any]) -> None:
        run.add_event(SourceEvent(name, MEMORY_HOLDER, run.clock.monotonic_ns(), None, self._tid, args))


class _Growth(NamedTuple):
    """Change between the first scan and one ``num_steps`` steps later."""

    baseline: _Baseline
    num_steps: int
    sequence_number: int | None
    reader: TensorReader
    kinds: ObjectKinds

    def args_for(self, retained: RetainedObject) -> dict[str, Any] | None:
        """Return the args to record for an object that got tensors step by step; None for any other."""
        if is_container(retained.kind):
            return self._container_args(retained)
        return self._tensor_args(retained.value) if retained.kind == "tensor" else None

    def _tensor_args(self, tensor: Any) -> dict[str, Any] | None:
        """Return the args for a tensor whose graph has grown with each step, or None."""
        since, until, num_steps = self.baseline.sequence_number, self.sequence_number, self.num_steps
        graph = self.reader.graph(tensor)
        if graph is None or since is None or until is None or not grows_each_step(graph, since, until, num_steps):
            return None
        if self.reader.graph_storage_bytes(graph) is None:
            return None
        return _make_args(num_steps, num_steps, num_steps, None, self.reader.device(tensor))

    def _container_args(self, retained: RetainedObject) -> dict[str, Any] | None:
        """Return the args for a container that has got tensors in each step, or None."""
        num_new = self.baseline.growth(retained)
        if (
            retained.kind == "deque" and deque.maxlen.__get__(retained.value) is not None
        ):  # it drops its oldest elements
            return None
        if num_new < _MIN_NEW_ELEMENTS or num_new * _MAX_STEPS_PER_ELEMENT < self.num_steps:
            return None
        new = summarize_new_tensors(retained, num_new, self.kinds, self.reader)
        if new.share < _MIN_TENSOR_SHARE:
            return None
        num_tensors, num_graphs = round(num_new * new.share), round(num_new * new.share_with_graph)
        return _make_args(self.num_steps, num_tensors, num_graphs, round(num_new * new.element_bytes), new.device)


def _container_keys(retained: RetainedObject) -> tuple[int, int]:
    """Return hashes by which a container is recognised: of its name, and of its id.

    Hashes keep no object alive and give the garbage collector no work.
    """
    return hash((retained.kind, retained.identity)), hash((retained.kind, id(retained.value)))


def _make_args(
    num_steps: int, num_tensors: int, num_graphs: int, num_bytes: int | None, device: int | None
) -> dict[str, Any]:
    args: dict[str, Any] = {"steps": num_steps, "tensors": num_tensors, "graphs": num_graphs}
    args |= {} if num_bytes is None else {"bytes": num_bytes}
    return args if device is None else args | {"device": device}


def _location_args(retained: RetainedObject) -> dict[str, Any]:
    """Return name, kind and location of an object and, where it is unambiguous, the line that adds to it."""
    args: dict[str, Any] = {"holder": retained.name, "kind": retained.kind, "location": retained.location}
    line = find_leak_line(retained)
    return args if line is None else args | {"line": f"{source_name(line[0])}:{line[1]}"}


def _user_function(frame: FrameType | None) -> str | None:
    """Return file and qualified name of the innermost function of user code, from ``frame`` outwards."""
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    return None
