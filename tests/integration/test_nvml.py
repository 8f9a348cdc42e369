"""GPUs by NVML: the real nvidia-ml-py, with a library of ours in place of the driver, and without a driver."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pynvml")
STAND_IN = Path(__file__).with_name("nvml_stand_in.c")
SCRIPT = """
import json, logging, sys
logging.basicConfig(stream=sys.stderr)
from kinetoscope import Profiler, ProfilerAction, SystemProfiler
from kinetoscope.testing import MemoryTraceHandler
import time
handler = MemoryTraceHandler()
source = SystemProfiler(profile_cpu=False, stats_thread_interval_seconds=0.01, **json.loads(sys.argv[1]))
with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[source], strict=True) as profiler:
    for _ in profiler.batches(range(5)):
        time.sleep(0.05)
print(json.dumps({name: values[-6:] for name, values in handler.counters().items()}))
"""


def counters(options, library_folder=""):
    import json

    environment = os.environ | {"LD_LIBRARY_PATH": str(library_folder)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(options)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture
def library_folder(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("the stand-in for the driver's library needs gcc")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", STAND_IN], check=True)
    return tmp_path


def test_every_gpu_is_counted_in_true_units(library_folder):
    found, log = counters({}, library_folder)
    assert {name: value for _, name, value in found["gpu/0"]} == {
        "busy_percent": 83,
        "memory_used_gib": 20.0,
        "power_w": 412.5,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "temperature_c": 64,
    }
    assert log == ""


def test_values_that_a_gpu_does_not_report_are_left_out(library_folder):
    found, _ = counters({}, library_folder)
    assert {name for _, name, _ in found["gpu/1"]} == {"busy_percent"}


def test_gpus_are_left_alone_unless_wanted(library_folder):
    found, _ = counters({"profile_gpu": False}, library_folder)
    assert found == {}


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_without_a_driver_there_are_no_gpus_and_a_warning_only_if_they_were_asked_for():
    assert counters({}) == ({}, "")
    found, log = counters({"profile_gpu": True})
    assert found == {}
    assert log.count("GPUs are not recorded") == 1
