"""Counters of NVIDIA GPUs from the driver's management library (NVML), without CUDA."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from kinetoscope.core.job.ranks import Ranks
from kinetoscope.errors import SettingsError
from kinetoscope.sources.visible_gpus import Gpu, visible_gpus

_GIB = 1 << 30


def check_installed() -> None:
    """Raise `SettingsError` if the package nvidia-ml-py is not installed."""
    if importlib.util.find_spec("pynvml") is None:
        raise SettingsError(
            "profile_gpu=True needs nvidia-ml-py, which is not installed: pip install kinetoscope[nvidia]"
        )


def open_gpus(ranks: Ranks) -> "Gpus | None":
    """Return the GPUs of this machine; None without nvidia-ml-py.

    Raises:
        OSError: The driver does not answer.
    """
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml  # pyright: ignore[reportMissingImports]

    try:
        pynvml.nvmlInit()
        return Gpus(pynvml, ranks)
    except pynvml.NVMLError as error:
        raise OSError(f"NVML does not answer ({error}). Is there a driver?") from error


class Gpus:
    """Reader of the GPUs that this process can use.

    A reading has ``gpu/<index>``, as torch numbers devices, with the busy percentage, GiB of memory in use, watts,
    clocks in MHz and degrees Celsius. Values that a GPU does not report are left out. If a node's ranks can use the
    same GPUs, its first rank reads all of them; otherwise each rank reads its own.

    Attributes:
        unreadable: GPUs that cannot be read, with the reason.
    """

    def __init__(self, nvml: Any, ranks: Ranks) -> None:
        self._nvml, self._ranks = nvml, ranks
        self.unreadable: list[str] = []
        self._gpus = list(self._find_all())
        self._instances: dict[str, Gpu | None] = {}
        self._unreported: set[tuple[Gpu, str]] = set()

    def __repr__(self) -> str:
        return "GPUs"

    def __call__(self) -> Iterator[tuple[str, dict[str, int | float]]]:
        """Yield the name and the values of each GPU's counters."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        visible = visible_gpus(self._gpus, self._find_instance, os.environ, cuda)
        if self._ranks.local_rank and len(visible) >= self._ranks.local_world_size:
            return
        for number, gpu in visible.items():
            if gpu.is_split:  # its counters cover all its instances
                continue
            values = {
                name: value
                for name, read in self._counters(gpu.handle)
                if (value := self._read_value(gpu, name, read)) is not None
            }
            if values:
                yield f"gpu/{number}", values

    def _find_all(self) -> Iterator[Gpu]:
        """Yield the GPUs that can be read; one may be lost, or hidden by a container."""
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            except self._nvml.NVMLError as error:
                self.unreadable.append(f"NVML's GPU {index} ({error})")
            else:
                yield self._describe(handle, index)

    def _describe(self, handle: Any, index: int) -> Gpu:
        """Return the identity of a GPU; NVML's order replaces an unknown PCI address."""
        nvml, address, uuid, model, is_split = self._nvml, (0, 0, index), "", "", False
        with contextlib.suppress(nvml.NVMLError):
            pci = nvml.nvmlDeviceGetPciInfo(handle)
            address = (pci.domain, pci.bus, pci.device)
        with contextlib.suppress(nvml.NVMLError):
            uuid = nvml.nvmlDeviceGetUUID(handle)
        with contextlib.suppress(nvml.NVMLError):
            model = nvml.nvmlDeviceGetName(handle)
        with contextlib.suppress(nvml.NVMLError):
            is_split = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
        return Gpu(handle, uuid, model, address, is_split)

    def _find_instance(self, uuid: str) -> Gpu | None:
        """Return the MIG instance with this UUID; the result is cached."""
        if uuid not in self._instances:
            self._instances[uuid] = None
            with contextlib.suppress(self._nvml.NVMLError):
                self._instances[uuid] = Gpu(self._nvml.nvmlDeviceGetHandleByUUID(uuid), uuid)
        return self._instances[uuid]

    def close(self) -> None:
        """Close the driver's library."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _counters(self, handle: Any) -> Iterator[tuple[str, Callable[[], float]]]:
        """Yield the name of each counter and the function that reads it."""
        nvml = self._nvml
        yield "busy_percent", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        yield "memory_used_gib", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / _GIB
        yield "power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        yield "sm_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        yield "memory_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
        yield "temperature_c", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)

    def _read_value(self, gpu: Gpu, name: str, read: Callable[[], float]) -> float | None:
        """Return a value; None if this GPU does not report it now. One that it never reports is not queried again."""
        if (gpu, name) in self._unreported:
            return None
        try:
            return read()
        except self._nvml.NVMLError as error:
            if error.value in (self._nvml.NVML_ERROR_NOT_SUPPORTED, self._nvml.NVML_ERROR_NO_PERMISSION):
                self._unreported.add((gpu, name))
            return None
