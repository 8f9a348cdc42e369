"""Counters of the machine, read on a background thread, and of the loop's thread, read in the loop."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any

import psutil

from kinetoscope.core.background.background_thread import BackgroundThread
from kinetoscope.core.clock.proc import StatField, read_stat
from kinetoscope.core.job.event import skippable
from kinetoscope.core.job.state import RunState
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.run.plugin_api import ProfiledState, ProfilerContext, RunContext
from kinetoscope.recording.run.settings import check_number
from kinetoscope.sources import nvml
from kinetoscope.sources.loop_clocks import LoopClocks
from kinetoscope.sources.window_source import WindowSource

_GIB = 1 << 30
_JOIN_S = 5.0
_BUSY_MS = "busy_ms"
# psutil reads many files. Linux has the same numbers in one, which halves the cost of a reading.
_IS_LINUX = sys.platform == "linux"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if _IS_LINUX else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if _IS_LINUX else 4096
Values = dict[str, int | float]
Reading = tuple[str, Values]


class SystemProfiler(WindowSource):
    """Record counters of the machine: CPU, memory, disks, network, GPUs, and the training process itself.

    Counters: ``cpu`` (percent of all cores), ``process`` (percent of one core, resident GiB, threads),
    ``memory/virtual`` and ``memory/swap`` (GiB), ``memory/cuda/<device>`` (GiB) where CUDA is in use, ``disk/<name>``
    and ``network/<nic>`` (bytes in total and per second, percent of the time that a disk was busy), and
    ``gpu/<device>`` (see `kinetoscope.sources.nvml`). Devices have torch's numbers. They are read every
    ``stats_thread_interval_seconds`` while a window is open, and once more at its last batch. Percentages cover the
    time since the previous reading in the same window; the first one has none.

    By default (``profile_gpu=None``), GPUs are recorded if there is a driver and the package nvidia-ml-py; only those
    that the process can use. The first rank of a node records them, or each rank if ranks have GPUs of their own. A
    reader that fails is logged once and tried again; after an unexpected error it is not used again.

    Raises:
        SettingsError: The interval is below 1 ms or above a day, or ``profile_gpu=True`` without nvidia-ml-py.
    """

    def __init__(
        self,
        profile_cpu: bool = True,
        profile_memory: bool = False,
        profile_disk: bool = False,
        profile_net: bool = False,
        stats_thread_interval_seconds: float = 0.5,
        *,
        profile_gpu: bool | None = None,
    ) -> None:
        super().__init__()
        check_number(
            stats_thread_interval_seconds, "stats_thread_interval_seconds", "seconds", min_value=0.001, max_value=86_400
        )
        if profile_gpu:
            nvml.check_installed()
        self.profile_cpu: bool = profile_cpu
        self.profile_memory: bool = profile_memory
        self.profile_disk: bool = profile_disk
        self.profile_net: bool = profile_net
        self.stats_thread_interval_seconds: float = stats_thread_interval_seconds
        self._readers: list[Callable[[], Iterator[Reading]]] = []
        if profile_cpu:
            self._readers += [_Cpu(), _Process()]
        if profile_memory:
            self._readers += [_read_memory, _read_cuda_memory]
        if profile_disk:
            self._readers.append(_Rates("disk", _disk_totals))
        if profile_net:
            self._readers.append(_Rates("network", _network_totals))
        self._profile_gpu = profile_gpu is not False
        self._requires_gpu = profile_gpu is True
        self._wake = threading.Event()
        self._recording = self._is_new_window = False
        self._clocks: LoopClocks | None = None
        self._closing = False
        self._thread: BackgroundThread | None = None
        self._failed: set[str] = set()
        self._markers: dict[str, Any] = {}

    def fit_start(self, state: ProfiledState, logger: object) -> None:
        """Start the thread that reads the counters."""
        if self._thread is None:
            self._closing = False
            self._thread = BackgroundThread(partial(self._loop, state), "kinetoscope-system")
            self._thread.try_start("The machine's counters are not read", state.profiler.run.report)

    @skippable
    def batch_start(self, state: ProfiledState, logger: object) -> None:
        """Wake the thread at the first and the last batch of a window."""
        action = state.profiler.get_action()
        was_recording, self._recording = self._recording, action is not ProfilerAction.SKIP
        if self._recording and not was_recording:
            self._is_new_window = True
        if self._recording and (not was_recording or action is ProfilerAction.ACTIVE_AND_SAVE):
            self._wake.set()

    @skippable
    def batch_end(self, state: ProfiledState, logger: object) -> None:
        """Record the loop thread's clocks, and stop reading when the next batch is skipped."""
        if self._clocks is not None:
            self._clocks.read(state.profiler)
        if state.profiler.get_action() is ProfilerAction.SKIP:  # the action of the next batch
            self._recording = False

    def install(self, run: RunContext) -> None:
        """Open the loop thread's clocks."""
        if self.profile_cpu:
            self._clocks = LoopClocks.open(run)

    def finish(self, run: RunContext) -> None:
        """Record the CPU use of the window."""
        if self._clocks is not None:
            self._clocks.record_cpu_use()

    def remove(self) -> None:
        """Close the loop thread's clocks."""
        clocks, self._clocks = self._clocks, None
        if clocks is not None:
            clocks.close()

    def close(self, state: RunState, logger: object) -> None:
        """Stop and join the thread."""
        super().close(state, logger)
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)
            if self._thread.is_alive():
                state.profiler.run.report("Reading the machine's counters does not end; its thread is left running.")
            self._thread = None

    def _loop(self, state: ProfiledState) -> None:
        """Read the counters until `close`; this is the thread's function."""
        gpus = self._open_gpus(state.profiler)
        readers = [*self._readers, gpus] if gpus else list(self._readers)
        while not self._closing:
            self._wake.wait(self.stats_thread_interval_seconds if self._recording else None)
            self._wake.clear()
            if self._recording and not self._closing:
                if self._is_new_window:
                    self._is_new_window = False
                    for reader in readers:
                        if isinstance(reader, _Cpu | _Process):
                            reader.reset()
                self._read_all(readers, state.profiler)
        if gpus:
            gpus.close()

    def _open_gpus(self, profiler: ProfilerContext) -> "nvml.Gpus | None":
        """Return the GPUs to read; None if there are none or they are not wanted."""
        if not self._profile_gpu:
            return None
        try:
            gpus = nvml.open_gpus(profiler.run.ranks)
            if self._requires_gpu and gpus is not None and gpus.unreadable:
                profiler.run.report(f"Not recorded: {', '.join(gpus.unreadable)}.")
            return gpus
        except Exception as error:  # the other readers continue, whatever the driver's package raises
            if self._requires_gpu:
                profiler.run.report(f"GPUs are not recorded: {_describe(error)}")
            return None

    def _read_all(self, readers: list[Callable[[], Iterator[Reading]]], profiler: ProfilerContext) -> None:
        """Read all counters; retry a reader after an expected error, and drop it after any other."""
        for reader in list(readers):
            try:
                self._read(reader, profiler)
            except (psutil.Error, OSError, RuntimeError) as error:
                self._report(reader, f"cannot be read at the moment: {error}", profiler)
            except Exception as error:
                readers.remove(reader)
                self._report(reader, f"cannot be read, and is left out from now on: {_describe(error)}", profiler)

    def _read(self, reader: Callable[[], Iterator[Reading]], profiler: ProfilerContext) -> None:
        for name, values in reader():
            marker = self._markers.get(name)
            if marker is None:
                marker = self._markers[name] = profiler.marker(name, categories=("system",))
            marker.counter(values)

    def _report(self, reader: Callable[[], Iterator[Reading]], problem: str, profiler: ProfilerContext) -> None:
        name = getattr(reader, "__name__", None) or repr(reader)
        if name not in self._failed:
            self._failed.add(name)
            profiler.run.report(f"The machine's {name} {problem}")


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


class _Cpu:
    """Percentage of all cores in use since the last reading."""

    def __init__(self) -> None:
        self._is_first = True

    def __repr__(self) -> str:
        return "cpu"

    def reset(self) -> None:
        """Skip the next value: psutil would count from the previous window, or return 0."""
        self._is_first = True

    def __call__(self) -> Iterator[Reading]:
        percent, is_first = psutil.cpu_percent(interval=None), self._is_first
        self._is_first = False
        if not is_first:
            yield "cpu", {"percent": percent}


class _Process:
    """CPU time, memory and threads of this process."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def __repr__(self) -> str:
        return "process"

    def reset(self) -> None:
        """Omit the percentage at the next reading."""
        self._last = None

    def __call__(self) -> Iterator[Reading]:
        cpu_s, resident_bytes, num_threads = _read_process()
        now, last = monotonic(), self._last
        self._last = now, cpu_s
        values: Values = {"resident_gib": resident_bytes / _GIB, "threads": num_threads}
        if last is not None and now > last[0]:
            values = {"percent": 100 * (cpu_s - last[1]) / (now - last[0])} | values
        yield "process", values


def _read_process() -> tuple[float, int, int]:
    """Return CPU time in seconds, resident bytes and number of threads of this process; one file has them on Linux."""
    if not _IS_LINUX:
        process = psutil.Process(os.getpid())
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss, process.num_threads()
    fields = read_stat("self")
    cpu_s = (int(fields[StatField.USER_TIME]) + int(fields[StatField.SYSTEM_TIME])) / _TICKS_PER_S
    return cpu_s, int(fields[StatField.RESIDENT_PAGES]) * _PAGE_BYTES, int(fields[StatField.NUM_THREADS])


def _read_memory() -> Iterator[Reading]:
    available, total, swap_free, swap_total = _read_memory_bytes()
    yield "memory/virtual", {"used_gib": (total - available) / _GIB, "available_gib": available / _GIB}
    yield "memory/swap", {"used_gib": (swap_total - swap_free) / _GIB, "free_gib": swap_free / _GIB}


def _read_memory_bytes() -> tuple[int, int, int, int]:
    """Return bytes of available memory, total memory, free swap and total swap."""
    if not _IS_LINUX:
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        return memory.available, memory.total, swap.free, swap.total
    with open("/proc/meminfo", "rb", buffering=0) as file:
        lines = dict(line.split(b":", 1) for line in file.read().splitlines())
    wanted = (b"MemAvailable", b"MemTotal", b"SwapFree", b"SwapTotal")
    available, total, swap_free, swap_total = (int(lines[name].split()[0]) * 1024 for name in wanted)
    return available, total, swap_free, swap_total


def _read_cuda_memory() -> Iterator[Reading]:
    """Yield the allocator's figures of the devices in use, without initialising CUDA."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    for device in range(cuda.device_count()):
        stats = cuda.memory_stats_as_nested_dict(device)
        if reserved := stats.get("reserved_bytes", {}).get("all", {}).get("current", 0):
            allocated = stats["allocated_bytes"]["all"]["current"]
            yield f"memory/cuda/{device}", {"allocated_gib": allocated / _GIB, "reserved_gib": reserved / _GIB}


class _Rates:
    """Totals by device, and their increase per second since the last reading.

    A device that disappeared is left out. One that is new, or has restarted its count, has no rates at first.
    """

    def __init__(self, kind: str, read_totals: Callable[[], Mapping[str, Values]]) -> None:
        self._kind = kind
        self._read_totals = read_totals
        self._last: Mapping[str, Values] = {}
        self._last_s = 0.0

    def __repr__(self) -> str:
        return self._kind

    def __call__(self) -> Iterator[Reading]:
        totals, now = self._read_totals(), monotonic()
        last, elapsed_s = self._last, now - self._last_s
        self._last, self._last_s = totals, now
        for device, values in totals.items():
            before = last.get(device)
            is_continuous = elapsed_s > 0 and before is not None and all(values[key] >= before[key] for key in values)
            rates = _rates(values, before, elapsed_s) if before is not None and is_continuous else {}
            yield f"{self._kind}/{device}", _totals_to_show(values) | rates


def _rates(values: Values, before: Values, elapsed_s: float) -> Values:
    rates = {f"{name}_per_s": (values[name] - before[name]) / elapsed_s for name in _totals_to_show(values)}
    if _BUSY_MS in values:
        rates["busy_percent"] = min(100.0, (values[_BUSY_MS] - before[_BUSY_MS]) / elapsed_s / 10)
    return rates


def _totals_to_show(values: Values) -> Values:
    """Return the totals without a disk's busy time, which is useful as a rate only."""
    return {name: value for name, value in values.items() if name != _BUSY_MS}


def _disk_totals() -> dict[str, Values]:
    disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    return {name: _disk(disk) for name, disk in disks.items()}


def _disk(disk: Any) -> Values:
    totals = {"read_bytes": disk.read_bytes, "write_bytes": disk.write_bytes}
    return totals | {_BUSY_MS: disk.busy_time} if hasattr(disk, "busy_time") else totals


def _network_totals() -> dict[str, Values]:
    cards = psutil.net_io_counters(pernic=True, nowrap=False) or {}
    return {name: {"sent_bytes": card.bytes_sent, "received_bytes": card.bytes_recv} for name, card in cards.items()}
