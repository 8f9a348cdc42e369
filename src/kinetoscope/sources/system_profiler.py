"""sources: the machine around the run. Readings flow from psutil to the recorder, on a thread of its own."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any

import psutil

from kinetoscope.errors import SettingsError
from kinetoscope.recording.action import ProfilerAction
from kinetoscope.training.callback import Callback

_GIB = 1 << 30
Values = dict[str, int | float]
Reading = tuple[str, Values]


class SystemProfiler(Callback):
    """Records what the machine does as counters: CPU, memory, disks, network, and the training process itself.

    Counters: ``cpu`` (percent of all cores), ``process`` (percent of one core, resident GiB, threads),
    ``memory/virtual`` and ``memory/swap`` (GiB), ``memory/cuda/<device>`` (GiB) where CUDA is in use,
    ``disk/<name>`` and ``network/<nic>`` (bytes in total and per second). They are read every
    ``stats_thread_interval_seconds`` while a window is open, once more at its last batch, and never otherwise.

    Raises `SettingsError` for an interval that is not positive.
    """

    def __init__(
        self,
        profile_cpu: bool = True,
        profile_memory: bool = False,
        profile_disk: bool = False,
        profile_net: bool = False,
        stats_thread_interval_seconds: float = 0.5,
    ) -> None:
        if not stats_thread_interval_seconds > 0:
            raise SettingsError(
                f"stats_thread_interval_seconds must be above 0, but is {stats_thread_interval_seconds}."
            )
        self._interval_s = stats_thread_interval_seconds
        self._readers: list[Callable[[], Iterator[Reading]]] = []
        if profile_cpu:
            self._readers += [_Cpu(), _Process()]
        if profile_memory:
            self._readers += [_read_memory, _read_cuda_memory]
        if profile_disk:
            self._readers.append(_Rates("disk", _disk_totals))
        if profile_net:
            self._readers.append(_Rates("network", _network_totals))
        self._wake = threading.Event()
        self._recording = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def fit_start(self, state: Any, logger: Any) -> None:
        self._thread = threading.Thread(target=self._loop, args=(state,), name="kinetoscope-system", daemon=True)
        self._thread.start()

    def batch_start(self, state: Any, logger: Any) -> None:
        action = state.profiler.get_action()
        was_recording, self._recording = self._recording, action is not ProfilerAction.SKIP
        if self._recording and (not was_recording or action is ProfilerAction.ACTIVE_AND_SAVE):
            self._wake.set()

    def batch_end(self, state: Any, logger: Any) -> None:
        if state.profiler.get_action() is ProfilerAction.SKIP:
            self._recording = False

    def close(self, state: Any, logger: Any) -> None:
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _loop(self, state: Any) -> None:
        while not self._closing:
            self._wake.wait(self._interval_s if self._recording else None)
            self._wake.clear()
            if self._recording and not self._closing:
                self._read_all(state.profiler)

    def _read_all(self, profiler: Any) -> None:
        for reader in list(self._readers):
            try:
                for name, values in reader():
                    profiler.marker(name, categories=("system",)).counter(values)
            except (psutil.Error, OSError) as error:
                # A disk or a network card may go away; the others are still worth reading.
                self._readers.remove(reader)
                profiler.report(f"The system counters of {reader!r} end here: {error}")


class _Cpu:
    """Percent of all cores in use since the last reading."""

    def __init__(self) -> None:
        psutil.cpu_percent(interval=None)

    def __call__(self) -> Iterator[Reading]:
        yield "cpu", {"percent": psutil.cpu_percent(interval=None)}


class _Process:
    """What this process itself takes."""

    def __init__(self) -> None:
        self._process: psutil.Process | None = None

    def __call__(self) -> Iterator[Reading]:
        if self._process is None:
            self._process = psutil.Process(os.getpid())
        with self._process.oneshot():
            values = {
                "percent": self._process.cpu_percent(interval=None),
                "resident_gib": self._process.memory_info().rss / _GIB,
                "threads": self._process.num_threads(),
            }
        yield "process", values


def _read_memory() -> Iterator[Reading]:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    yield "memory/virtual", {"used_gib": memory.used / _GIB, "available_gib": memory.available / _GIB}
    yield "memory/swap", {"used_gib": swap.used / _GIB, "free_gib": swap.free / _GIB}


def _read_cuda_memory() -> Iterator[Reading]:
    """The allocator's own figures, of the devices that this process uses already: asking initialises nothing."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    for device in range(cuda.device_count()):
        stats = cuda.memory_stats_as_nested_dict(device)
        if reserved := stats.get("reserved_bytes", {}).get("all", {}).get("current", 0):
            allocated = stats["allocated_bytes"]["all"]["current"]
            yield f"memory/cuda/{device}", {"allocated_gib": allocated / _GIB, "reserved_gib": reserved / _GIB}


class _Rates:
    """Totals of bytes by device, and how fast they grew since the last reading."""

    def __init__(self, kind: str, read_totals: Callable[[], Mapping[str, Values]]) -> None:
        self._kind = kind
        self._read_totals = read_totals
        self._last: Mapping[str, Values] = {}
        self._last_at = 0.0

    def __repr__(self) -> str:
        return self._kind

    def __call__(self) -> Iterator[Reading]:
        totals, now = self._read_totals(), monotonic()
        elapsed_s = now - self._last_at
        for device, values in totals.items():
            before = self._last.get(device)
            rates = {} if before is None else {f"{k}_per_s": (v - before[k]) / elapsed_s for k, v in values.items()}
            yield f"{self._kind}/{device}", {**values, **rates}
        self._last, self._last_at = totals, now


def _disk_totals() -> dict[str, Values]:
    disks = psutil.disk_io_counters(perdisk=True) or {}
    return {name: {"read_bytes": it.read_bytes, "write_bytes": it.write_bytes} for name, it in disks.items()}


def _network_totals() -> dict[str, Values]:
    cards = psutil.net_io_counters(pernic=True)
    return {name: {"sent_bytes": it.bytes_sent, "received_bytes": it.bytes_recv} for name, it in cards.items()}
