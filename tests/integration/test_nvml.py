"""GPUs by NVML: the real nvidia-ml-py, with a library of ours in place of the driver, and without a driver."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.fork_server import run_program

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


# A library that is loaded is what others find under its name.
LOAD = "import ctypes; ctypes.CDLL({library!r})\n"


def counters(options, library=None, torch="", **machine):
    cleared = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    load = LOAD.format(library=str(library)) if library else ""
    done = run_program(load + torch + SCRIPT, json.dumps(options), environment=cleared | machine)
    assert done.returncode == 0, done.stderr
    logged = [
        line for line in done.stderr.splitlines(keepends=True) if not line.startswith(("Kinetoscope: ", "kinetoscope "))
    ]
    return json.loads(done.stdout.splitlines()[-1]), "".join(logged)  # without the end report


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("the stand-in for the driver's library needs gcc")
    name = "libnvidia-ml.so.1"
    path = tmp_path_factory.mktemp("library") / name
    subprocess.run(["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", path, STAND_IN], check=True)
    return path


def test_every_gpu_is_counted_in_true_units(library):
    found, log = counters({}, library)
    assert {name: value for _, name, value in found["gpu/0"]} == {
        "busy_percent": 83,
        "memory_used_gib": 20.0,
        "power_w": 412.5,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "temperature_c": 64,
    }
    assert log == ""


def test_values_that_a_gpu_does_not_report_are_left_out(library):
    found, _ = counters({}, library)
    assert {name for _, name, _ in found["gpu/1"]} == {"busy_percent"}


def test_gpus_are_left_alone_unless_wanted(library):
    found, _ = counters({"profile_gpu": False}, library)
    assert found == {}


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_gpus_without_a_driver_and_a_warning_only_on_request():
    assert counters({}) == ({}, "")
    found, log = counters({"profile_gpu": True})
    assert found == {}
    assert log.count("GPUs are not recorded") == 1


def busy(library, options=None, **machine):
    """Map each counter to a GPU of NVML, by how busy the GPU is."""
    found, _ = counters(options or {}, library, **machine)
    names = {83 + number: number for number in range(8)} | {7: "instance"}
    return {
        name: next(names[value] for _, series, value in values if series == "busy_percent")
        for name, values in found.items()
    }


def test_lost_or_hidden_gpu_leaves_the_others_and_is_named_if_requested(library):
    assert busy(library, GPUS="3", LOST="1") == {"gpu/0": 0, "gpu/1": 2}
    found, log = counters({"profile_gpu": True}, library, GPUS="3", LOST="1")
    assert len(found) == 2
    assert log.count("Not recorded: NVML's GPU 1 (") == 1


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("2", {"gpu/0": 2}),
        ("3,1", {"gpu/0": 3, "gpu/1": 1}),
        (" 3 , 1 ", {"gpu/0": 3, "gpu/1": 1}),
        ("1,9,2", {"gpu/0": 1}),
        ("1,-1,2", {"gpu/0": 1}),
        ("1,1", {}),
        ("GPU-a3,GPU-a0", {"gpu/0": 3, "gpu/1": 0}),
        ("GPU-a3,GPU-b", {"gpu/0": 3}),
        ("GPU-a", {}),  # the start of several
        ("MIG-5eed", {"gpu/0": "instance"}),
        ("MIG-other", {}),
        ("", {}),
        ("-1", {}),
        ("NoDevFiles", {}),
    ],
)
def test_only_gpus_visible_to_the_process_are_counted_by_torchs_indices(library, chosen, expected):
    assert busy(library, GPUS="4", CUDA_VISIBLE_DEVICES=chosen) == expected


def test_numbers_follow_the_addresses_of_gpus_and_not_nvmls_order(library):
    reversed_order = {"gpu/0": 2, "gpu/1": 1, "gpu/2": 0}
    assert busy(library, GPUS="3", REVERSED="1") == reversed_order
    assert busy(library, GPUS="3", REVERSED="1", OTHER_MODEL="1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == reversed_order


def test_gpus_of_several_models_have_no_number_until_their_order_is_known(library):
    assert busy(library, GPUS="3", OTHER_MODEL="0") == {}
    assert busy(library, GPUS="3", OTHER_MODEL="0", CUDA_VISIBLE_DEVICES="GPU-a2") == {"gpu/0": 2}


def test_the_counters_of_a_gpu_that_is_split_are_not_those_of_the_process(library):
    assert busy(library, SPLIT="0", CUDA_VISIBLE_DEVICES="0") == {}
    assert busy(library, SPLIT="0", CUDA_VISIBLE_DEVICES="MIG-5eed") == {"gpu/0": "instance"}


# Replaces a torch that has initialised CUDA, which needs a GPU. The order is CUDA's own: the fastest GPU first.
TORCH = """
import sys, types
def properties(number):
    return types.SimpleNamespace(uuid=UUIDS[number])
cuda = types.SimpleNamespace(
    is_initialized=lambda: True, device_count=lambda: len(UUIDS), get_device_properties=properties
)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
"""


def test_once_torch_has_initialised_cuda_its_gpus_are_known_by_their_uuids(library):
    machine = {"GPUS": "4", "OTHER_MODEL": "0", "torch": "UUIDS = ['a3', 'a0']" + TORCH}
    assert busy(library, **machine) == {"gpu/0": 3, "gpu/1": 0}
    assert busy(library, **machine | {"torch": "UUIDS = ['5eed']" + TORCH}) == {"gpu/0": "instance"}


def test_ranks_count_their_own_gpus_and_shared_ones_are_counted_once(library):
    second = {"GPUS": "2", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    assert busy(library, **second, CUDA_VISIBLE_DEVICES="1") == {"gpu/0": 1}
    assert busy(library, **second) == {}
