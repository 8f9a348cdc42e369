"""Counters of the GPU, idle and under load: NVML's own, and those that `SystemProfiler` records."""

import time
from typing import Any

import torch

import kinetoscope
from gpu_kit.tasks.recorded import drop_copies
from gpu_kit.tasks.task import TaskRun
from kinetoscope import SystemProfiler

LOAD_S = 4.0


def main() -> None:
    import pynvml

    run = TaskRun()
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    run.probe("driver", lambda: _string(pynvml.nvmlSystemGetDriverVersion()))
    run.probe("name", lambda: _string(pynvml.nvmlDeviceGetName(device)))
    torch.cuda.init()
    time.sleep(0.5)
    _read_all(run, pynvml, device, "idle")
    left = torch.randn(8192, 8192, device="cuda").bfloat16()
    samples: list[dict[str, Any]] = []
    system = SystemProfiler(profile_gpu=True, stats_thread_interval_seconds=0.1)
    schedule = kinetoscope.cyclic_schedule(warmup=0, active=10_000, per="run")
    with kinetoscope.profile(run.folder / "run", schedule=schedule, torch=False, system=system, quiet=True) as profiler:
        begin = time.monotonic()
        while time.monotonic() - begin < LOAD_S:
            for _ in range(50):
                torch.mm(left, left)
            torch.cuda.synchronize()
            profiler.step()
            samples.append({"at_s": time.monotonic() - begin, "power_w": pynvml.nvmlDeviceGetPowerUsage(device) / 1e3})
        for _ in range(50):
            torch.mm(left, left)
        _read_all(run, pynvml, device, "loaded")
        torch.cuda.synchronize()
    drop_copies(run.folder / "run")
    run.add(power=samples[:: max(1, len(samples) // 50)])


def _read_all(run: TaskRun, nvml: Any, device: Any, state: str) -> None:
    """Add every counter on its own: a GPU may lack any of them."""
    throttling = "nvmlDeviceGetCurrentClocksEventReasons"
    if not hasattr(nvml, throttling):
        throttling = "nvmlDeviceGetCurrentClocksThrottleReasons"
    reads = {
        "busy_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu,
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1e3,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1e3,
        "energy_mj": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(device),
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
        "max_sm_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
        "memory_used_gib": lambda: nvml.nvmlDeviceGetMemoryInfo(device).used / 2**30,
        "throttle_reasons": lambda: _reasons(nvml, getattr(nvml, throttling)(device)),
        "ecc_errors": lambda: nvml.nvmlDeviceGetTotalEccErrors(
            device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
        "pcie_tx_kb_per_s": lambda: nvml.nvmlDeviceGetPcieThroughput(device, nvml.NVML_PCIE_UTIL_TX_BYTES),
        "pcie_link": lambda: [
            nvml.nvmlDeviceGetCurrPcieLinkGeneration(device),
            nvml.nvmlDeviceGetCurrPcieLinkWidth(device),
        ],
    }
    values: dict[str, Any] = {}
    for name, read in reads.items():
        try:
            values[name] = read()
        except Exception as error:  # NVML's errors, and functions that an old package lacks
            values[name] = {"error": f"{type(error).__name__}: {error}"}
    run.add(**{state: values})


def _reasons(nvml: Any, bits: int) -> list[str]:
    """Return the names of the reasons why clocks are throttled."""
    prefixes = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")
    names = {
        getattr(nvml, name): name.removeprefix(prefix)
        for prefix in prefixes
        for name in dir(nvml)
        if name.startswith(prefix) and isinstance(getattr(nvml, name), int)
    }
    return sorted(name for bit, name in names.items() if bit and bit & bits == bit and name != "All")


def _string(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
