"""sources: counters of NVIDIA's GPUs, from the driver's own library (NVML). CUDA is not used."""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from kinetoscope.errors import SettingsError

_GIB = 1 << 30


def require() -> None:
    """Raises `SettingsError` if the package nvidia-ml-py is not installed."""
    if importlib.util.find_spec("pynvml") is None:
        raise SettingsError(
            "profile_gpu=True needs nvidia-ml-py, which is not installed: pip install kinetoscope[nvidia]"
        )


def open_gpus() -> "Gpus | None":
    """The GPUs of this machine; None without nvidia-ml-py. Raises OSError if the driver does not answer."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml  # pyright: ignore[reportMissingImports]

    try:
        pynvml.nvmlInit()
        return Gpus(pynvml)
    except pynvml.NVMLError as error:
        raise OSError(f"NVML does not answer ({error}). Is there a driver?") from error


class Gpus:
    """Reads every GPU: ``gpu/<index>`` with percent of the time that kernels ran, GiB of memory in use, watts, clocks
    in MHz and degrees Celsius. Values that a GPU does not report are left out.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        self._unreported: set[tuple[int, str]] = set()

    def __repr__(self) -> str:
        return "GPUs"

    def __call__(self) -> Iterator[tuple[str, dict[str, int | float]]]:
        for index, device in enumerate(self._devices):
            values = {
                name: value
                for name, read in self._series(device)
                if (value := self._ask(index, name, read)) is not None
            }
            if values:
                yield f"gpu/{index}", values

    def close(self) -> None:
        """Closes the driver's library."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _series(self, device: Any) -> Iterator[tuple[str, Callable[[], float]]]:
        nvml = self._nvml
        yield "busy_percent", lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu
        yield "memory_used_gib", lambda: nvml.nvmlDeviceGetMemoryInfo(device).used / _GIB
        yield "power_w", lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000
        yield "sm_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)
        yield "memory_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)
        yield "temperature_c", lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)

    def _ask(self, index: int, name: str, read: Callable[[], float]) -> float | None:
        """The value; None if this GPU does not report it now. A value that it never reports is not asked for again."""
        if (index, name) in self._unreported:
            return None
        try:
            return read()
        except self._nvml.NVMLError as error:
            if error.value in (self._nvml.NVML_ERROR_NOT_SUPPORTED, self._nvml.NVML_ERROR_NO_PERMISSION):
                self._unreported.add((index, name))
            return None
