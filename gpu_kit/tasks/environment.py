"""The machine, its GPU and driver, and the versions of everything that the results depend on."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from gpu_kit.tasks.task import TaskRun

_PACKAGES = ("torch", "triton", "numpy", "psutil", "rich", "pytest", "hypothesis", "nvidia-ml-py", "kinetoscope")
_FAMILIES = ("nvidia-cuda-cupti", "nvidia-nccl", "nvidia-cudnn", "msgspec", "isal", "polars")


def main() -> None:
    run = TaskRun()
    run.probe("kinetoscope", _version_of_command)
    run.probe("python", lambda: {"version": platform.python_version(), "implementation": sys.implementation.name})
    run.probe("system", _system)
    run.probe("packages", _packages)
    run.probe("cuda_driver", _cuda_driver)
    run.probe("torch", _torch)
    run.probe("cupti", _cupti)
    if not run.cpu:
        run.probe("gpu", _gpu)
        run.probe("nvidia_smi", lambda: _write_nvidia_smi(run.folder / "nvidia-smi.txt"))
    run.probe("native", _native)


def _version_of_command() -> str:
    command = [sys.executable, "-m", "kinetoscope", "--version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()


def _system() -> dict[str, Any]:
    import psutil

    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "cpu": next(iter(models), ""),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "cgroup_cpu_max": " ".join(_lines("/sys/fs/cgroup/cpu.max")),
        "has_schedstat": Path("/proc/self/schedstat").exists(),
        "has_syscall_file": Path("/proc/self/syscall").exists(),
        "compiler": shutil.which("cc") or shutil.which("gcc") or "",
        "nvcc": shutil.which("nvcc") or "",
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _packages() -> dict[str, str]:
    found = {each.metadata["Name"]: each.version for each in distributions() if each.metadata["Name"]}
    return {name: found[name] for name in sorted(found) if name in _PACKAGES or name.startswith(_FAMILIES)}


def _native() -> dict[str, bool]:
    import torch  # noqa: F401 - the save without the GIL is linked to it

    from kinetoscope import native

    return {
        "recorder": not native.why_not_recorded(),
        "kineto_save": _can_import("kinetoscope._kineto_save"),
    }


def _can_import(module: str) -> bool:
    command = [sys.executable, "-c", f"import torch, {module}"]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


def _torch() -> dict[str, Any]:
    import torch

    cuda = torch.cuda.is_available()
    nccl = getattr(torch.cuda, "nccl", None)
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "cuda_is_available": cuda,
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "nccl": list(nccl.version()) if cuda and nccl is not None else None,
        "activities": sorted(each.name for each in torch.profiler.supported_activities()),
        "num_threads": torch.get_num_threads(),
    }


def _gpu() -> dict[str, Any]:
    import torch

    device = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "name": device.name,
        "count": torch.cuda.device_count(),
        "capability": f"{device.major}.{device.minor}",
        "multiprocessors": device.multi_processor_count,
        "memory_gib": round(total / 2**30, 1),
        "free_gib": round(free / 2**30, 1),
    }


def _cuda_driver() -> dict[str, str]:
    found = {"proc": " ".join(_lines("/proc/driver/nvidia/version")[:1])}
    params = [line for line in _lines("/proc/driver/nvidia/params") if "Profiling" in line]
    return found | ({"params": "; ".join(params)} if params else {})


def _cupti() -> dict[str, Any]:
    """Return the version of the CUPTI that this process has loaded with torch."""
    import torch  # noqa: F401 - it loads CUPTI

    loaded = {line.split()[-1] for line in _lines("/proc/self/maps") if "libcupti" in line}
    if not loaded:
        return {"loaded": False}
    version = ctypes.c_uint32()
    path = sorted(loaded)[0]
    ctypes.CDLL(path).cuptiGetVersion(ctypes.byref(version))
    return {"loaded": True, "file": Path(path).name, "version": version.value}


def _write_nvidia_smi(path: Path) -> str:
    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi is not on the PATH"
    done = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, timeout=20)
    path.write_text(done.stdout, encoding="utf-8")
    return f"exit code {done.returncode}"


if __name__ == "__main__":
    main()
