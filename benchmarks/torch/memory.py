"""Peak memory of exports and tables, and memory that remains after many profiles, compared with torch's.

Each is measured in a process of its own, which prints a number of bytes.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.suite import Measure, SuiteResult

_MODULES = {"ours": "kinetoscope.torch", "stock": "torch.profiler"}
_HEAD = """
import gc, tempfile, warnings
warnings.simplefilter("ignore")
import torch, {module} as module
from benchmarks.torch.work import record

def status(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))
"""
_PEAK_PROGRAM = """
profiler = record(module, {num_events}, record_shapes=True)
gc.collect()
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
before = status("VmRSS")
with tempfile.TemporaryDirectory() as folder:
    {deed}
print(status("VmHWM") - before)
"""
_OPERATIONS = {
    "key_averages()": "profiler.key_averages().table()",
    "export and key_averages()": (
        'profiler.export_chrome_trace(f"{folder}/trace.json.gz"); profiler.key_averages().table()'
    ),
}
_LEAK_PROGRAM = """
for number in range({num_profiles}):
    if number == {num_profiles} * 2 // 5:
        gc.collect()
        before = status("VmRSS")
    with module.profile():
        torch.ones(3) + 1
gc.collect()
print(status("VmRSS") - before)
"""


def run(*, quick: bool) -> SuiteResult:
    """Measure peaks of memory with many events, and growth over many profiles."""
    num_events, num_profiles, rounds = (3_000, 30, 1) if quick else (128_000, 300, 1)
    measures = []
    for name, deed in _OPERATIONS.items():
        replacement, stock = (
            _measure_mb(_HEAD + _PEAK_PROGRAM, module, rounds, num_events=num_events, deed=deed) for module in _MODULES
        )
        measures.append(
            Measure(f"peak of {name} / stock's", replacement / stock, "x", f"{replacement:.1f} / {stock:.1f} MB")
        )
    replacement, stock = (
        _measure_mb(_HEAD + _LEAK_PROGRAM, module, rounds, num_profiles=num_profiles) for module in _MODULES
    )
    measures.append(Measure("growth over the last 180 of 300 profiles, beyond stock's", replacement - stock, "MB"))
    return SuiteResult(
        suite="torch_memory",
        title=f"memory added, {num_events} events; and by {num_profiles} profiles one after the other",
        measures=measures,
        notes=[f"Growth: ours {replacement:.1f} MB, stock {stock:.1f} MB."],
    )


def _measure_mb(program: str, module: str, rounds: int, **values: object) -> float:
    source = program.replace("{module}", _MODULES[module])
    for name, value in values.items():
        source = source.replace("{" + name + "}", str(value))
    return median(max(1, _run_program(source)) / 1e6 for _ in range(rounds))


def _run_program(source: str) -> int:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=root, capture_output=True, text=True, check=True, timeout=600
    )
    return int(done.stdout)
