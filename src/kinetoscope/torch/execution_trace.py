"""Execution traces: the operators that run, with their inputs, as a JSON file from which they can be replayed.

torch's C++ code has at most one observer per process, which writes plain JSON. The file is compressed at the end if its
name ends in ``.gz``, and the kernels that a replay needs are copied next to it.
"""

# torch.autograd does not export all that its own profiler uses.
# pyright: reportPrivateImportUsage=false

import os
import shutil
import sys
import tempfile
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import kinetoscope.torch.private_names as private_names
from kinetoscope.core.job.ranks import torch_distributed
from kinetoscope.core.paths.atomic_file import atomic_file, make_folder, partial_file, remove_partials
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.torch.metadata import encode_value

_ENABLED = "ENABLE_PYTORCH_EXECUTION_TRACE"
_EXTRAS = "ENABLE_PYTORCH_EXECUTION_TRACE_EXTRAS"
_PROCESS_GROUPS = "## process_group:init ##"

running_observers: set[int] = set()
"""Ids of the running observers; while there are any, `record_function` makes spans without a profiler."""

# A global, because torch has one observer per process and would silently mix the operators of two in one file.
_registered: "weakref.ref[ExecutionTraceObserver] | None" = None


class ITraceObserver(ABC):
    """Interface of an observer that a profiler calls; torch's name for it is ``_ITraceObserver``."""

    @abstractmethod
    def start(self) -> None:
        """Handle the start of a window."""

    @abstractmethod
    def stop(self) -> None:
        """Handle the end of a window."""

    @abstractmethod
    def cleanup(self) -> None:
        """Handle the exit of the profiler."""


class ExecutionTraceObserver(ITraceObserver):
    """Write the operators that run between `start` and `stop`, with their inputs, as an execution trace.

    >>> observer = ExecutionTraceObserver().register_callback("trace.et.json.gz")  # doctest: +SKIP

    As a profiler's ``execution_trace_observer``, it is started and stopped with each window, and its file is complete
    when the profiler's ``with`` block ends.
    """

    def __init__(self) -> None:
        self._registered = False
        self._execution_trace_running = False  # torch's own tests read this name
        self.extra_resources_collection: bool = False
        self.resources_dir: str = ""
        self.output_file_path: str = ""
        self.output_file_path_observer: str = ""
        self._plain_file = ExitStack()
        self._writer: ExecutionTraceObserver | None = None  # the observer that owns the file this one writes to
        self._guests: weakref.WeakSet[ExecutionTraceObserver] = weakref.WeakSet()

    def __del__(self) -> None:
        self.unregister_callback()

    @staticmethod
    def build_execution_trace_obs_from_env() -> "ExecutionTraceObserver | None":
        """Return a registered observer if ``ENABLE_PYTORCH_EXECUTION_TRACE=1`` is in the environment, else None.

        It writes to a new temporary file; with ``ENABLE_PYTORCH_EXECUTION_TRACE_EXTRAS=1`` it also collects kernels.
        """
        if os.environ.get(_ENABLED) != "1":
            return None
        try:
            number, path = tempfile.mkstemp(suffix=".et.json")
        except OSError as error:
            warnings.warn(f"No execution trace is recorded, as a temporary file cannot be made: {error}.", stacklevel=2)
            return None
        os.close(number)
        observer = ExecutionTraceObserver().register_callback(path)
        observer.set_extra_resource_collection(os.environ.get(_EXTRAS) == "1")
        return observer

    def register_callback(self, output_file_path: str | os.PathLike[str]) -> Self:
        """Set the file to write, compressed if it ends in ``.gz``; do nothing if a file is set already.

        If another observer is registered, this one records into that one's file, with a warning.
        """
        if self._registered:
            return self
        path = os.fspath(output_file_path)
        self.output_file_path = self.output_file_path_observer = path
        self._writer = _claim_observer(self)
        if self._writer is not None:
            self._registered = True
            self._writer._guests.add(self)
            return self
        remove_partials(make_folder(Path(path).parent))
        if path.endswith(".gz"):
            self.output_file_path_observer = str(self._plain_file.enter_context(partial_file(Path(path))))
        self._registered = private_names.add_observer(self.output_file_path_observer)
        self.set_extra_resource_collection(self.extra_resources_collection)
        return self

    def unregister_callback(self) -> None:
        """Complete the file, unless it is another observer's."""
        if not self._registered:
            return
        self.stop()
        self._warn_on_error("save the kernels", self._save_kernels)
        self._registered = False
        if self._writer is not None:
            self._writer = None
            return
        for guest in list(self._guests):
            guest.stop()
        private_names.remove_observer()
        if self.output_file_path_observer != self.output_file_path:
            self._warn_on_error("compress the file", self._compress)

    @property
    def is_registered(self) -> bool:
        """True while there is a file that is not complete."""
        return self._registered

    def is_running(self) -> bool:
        """Return whether operators are being recorded."""
        return self._execution_trace_running

    def start(self) -> None:
        """Start recording; do nothing unless registered."""
        is_written = self._registered and (self._writer is None or self._writer.is_registered)
        if is_written and not self._execution_trace_running:
            if not running_observers:
                private_names.enable_observer()
            self._execution_trace_running = True
            running_observers.add(id(self))
            _record_process_groups()

    def stop(self) -> None:
        """Pause recording; `start` continues in the same file."""
        if self._execution_trace_running:
            self._execution_trace_running = False
            running_observers.discard(id(self))
            if not running_observers:
                private_names.disable_observer()

    def cleanup(self) -> None:
        """Call `unregister_callback`."""
        self.unregister_callback()

    def get_output_file_path(self) -> str | None:
        """Return the path given to `register_callback`; None before that."""
        return self.output_file_path or None

    def set_extra_resource_collection(self, val: bool) -> None:
        """Set whether generated kernels, which a replay needs, are kept next to the trace."""
        self.extra_resources_collection = val
        if val and self.output_file_path:
            self.get_resources_dir(can_create=True)

    def get_resources_dir(self, can_create: bool = False) -> str | None:
        """Return the folder of generated kernels; None if they are not collected or it does not exist."""
        if not self.extra_resources_collection or not self.output_file_path:
            return None
        if not self.resources_dir:
            self.resources_dir = self.get_resources_dir_for_et_path(self.output_file_path, can_create) or ""
        return self.resources_dir or None

    @staticmethod
    def get_resources_dir_for_et_path(trace_path: str | os.PathLike[str], create_dir: bool = False) -> str | None:
        """Return the folder of generated kernels for ``trace_path``; None if it does not exist."""
        trace = Path(os.fspath(trace_path))
        folder = trace.with_name(f"{trace.stem}_resources")
        if create_dir:
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                warnings.warn(
                    f"Cannot make the folder {folder} for kernels of an execution trace: {error}.", stacklevel=2
                )
        return str(folder) if folder.exists() else None

    def _save_kernels(self) -> None:
        """Copy the generated kernels next to the trace."""
        folder = self.get_resources_dir()
        cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
        for module in getattr(cache, "modules", ()) if folder else ():
            if file := getattr(module, "__file__", None):
                shutil.copy(file, str(folder))

    def _compress(self) -> None:
        target, plain = Path(self.output_file_path), Path(self.output_file_path_observer)
        with (
            atomic_file(target) as stream,
            compressed_by_name(stream, target) as compressed,
            plain.open("rb") as source,
        ):
            shutil.copyfileobj(source, compressed, 1 << 20)
        self._plain_file.close()

    def _warn_on_error(self, purpose: str, action: Callable[[], None]) -> None:
        """Call ``action``, with a warning in place of an error."""
        try:
            action()
        except (OSError, RuntimeError, ImportError) as error:
            warnings.warn(f"Cannot {purpose} of the execution trace {self.output_file_path}: {error}", stacklevel=3)


def _claim_observer(observer: ExecutionTraceObserver) -> ExecutionTraceObserver | None:
    """Make this the process's observer; return the current one instead if there is one."""
    global _registered
    current = None if _registered is None else _registered()
    if current is not None and current.is_registered:
        warnings.warn(
            "Another execution trace observer is registered, and torch has one per process, so what this one records "
            f"goes into {current.output_file_path}.",
            stacklevel=3,
        )
        return current
    _registered = weakref.ref(observer)
    return None


def _record_process_groups() -> None:
    """Record a node that lists the process groups, if torch.distributed is initialised."""
    distributed = torch_distributed()
    if distributed is None:
        return
    config = encode_value("process groups", private_names.world_process_groups(distributed))
    private_names.record_inputs(_PROCESS_GROUPS, config)
