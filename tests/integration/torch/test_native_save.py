"""Kineto saves in our C++ module only if both were compiled alike; else torch saves, and a line in the log says so."""

import json
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from support.fork_server import run_forked

SOURCE = Path(__file__).parents[3] / "src" / "native" / "kineto" / "kineto_save.cpp"
EXPORTS = """
import importlib.util, logging, sys
logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
import torch
if len(sys.argv) > 2:
    torch.__version__ = sys.argv[2]
import kinetoscope
if sys.argv[1]:
    spec = importlib.util.spec_from_file_location("kinetoscope._kineto_save", sys.argv[1])
    kinetoscope._kineto_save = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kinetoscope._kineto_save)
from kinetoscope.torch import profile
for number in range(2):
    with profile() as profiler:
        torch.ones(3)
    profiler.export_chrome_trace(f"trace{number}.json")
"""


def export(folder: Path, *arguments: str) -> str:
    """Return the log of a process that exports two windows."""
    child = run_forked(("torch",), EXPORTS, *arguments, folder=folder)
    assert child.returncode == 0, child.stderr
    for number in range(2):
        events = json.loads((folder / f"trace{number}.json").read_text())["traceEvents"]
        assert "aten::ones" in {event["name"] for event in events}
    return child.stderr


def built_with(folder: Path, *flags: str) -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to build the module with")
    module = folder / "_kineto_save.abi3.so"
    headers = sysconfig.get_path("include")
    options = ["-std=c++17", "-O0", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000", f"-I{headers}", *flags]
    subprocess.run([compiler, *options, str(SOURCE), "-o", str(module)], check=True)
    return str(module)


def test_a_build_with_the_old_strings_leaves_saving_to_torch_and_ends_no_training(tmp_path):
    log = export(tmp_path, built_with(tmp_path, "-D_GLIBCXX_USE_CXX11_ABI=0"))
    assert [line for line in log.splitlines() if "saves its traces" in line and line.startswith("INFO")]


def test_an_untested_version_of_torch_saves_by_itself_and_one_line_says_so(tmp_path):
    log = export(tmp_path, "", "9.1.0")
    [line] = [line for line in log.splitlines() if "saves its traces" in line]
    assert line.startswith("INFO")
    assert "9.1.0" in line


FINISHES_TWICE = """
import fcntl, os, threading
import torch
from kinetoscope import _kineto_save
from kinetoscope.torch.kineto_stream import LIBRARY
with torch.profiler.profile() as profiler:
    torch.ones(3)
os.mkfifo("trace.json.tmp")
written = os.open("trace.json.tmp", os.O_RDONLY | os.O_NONBLOCK)
end = os.open("trace.json.tmp", os.O_WRONLY)
os.write(end, bytes(fcntl.fcntl(end, fcntl.F_GETPIPE_SZ)))  # so that the save has to wait
saving = _kineto_save.start(profiler.profiler.kineto_results, LIBRARY, "trace.json", bytearray(1), end, 0)
finishing = [threading.Thread(target=_kineto_save.finish, args=(saving,)) for _ in range(2)]
[thread.start() for thread in finishing]
finishing[0].join(0.5)  # by now both wait, since the pipe has no reader
os.set_blocking(written, True)
with open(written, "rb") as text:
    print(b"traceEvents" in text.read())
[thread.join() for thread in finishing]
_kineto_save.finish(saving)
"""


def test_a_save_may_be_finished_by_two_threads_at_once(tmp_path):
    child = run_forked(("torch",), FINISHES_TWICE, folder=tmp_path)
    assert (child.returncode, child.stdout) == (0, "True\n"), child.stderr
