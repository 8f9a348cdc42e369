"""Time until the first window opens in a fresh process, compared with torch's first start().

The processes of all ways take turns, as other load changes what each takes.
"""

import json
import statistics
import subprocess
import sys
import tempfile

from benchmarks.suite import Measure, SuiteResult

_PROGRAM = """
import json, sys, time, torch
folder, options = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train():
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(3):
    train()
def timed(call):
    begin, begin_cpu = time.perf_counter_ns(), time.process_time_ns()
    call()
    return time.perf_counter_ns() - begin, time.process_time_ns() - begin_cpu
"""
_TORCH = """
profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)
times = timed(profiler.start)
train()
profiler.stop()
print(json.dumps(times))
"""
_KINETOSCOPE = """
import kinetoscope
schedule = kinetoscope.cyclic_schedule(skip_first=3, warmup=WARMUP, active=2, per="run")
source = kinetoscope.TorchProfiler(folder + "/torch_traces", profile_memory=False, with_flops=False, **options)
with kinetoscope.profile(folder, schedule=schedule, torch=source, system=False, quiet=True) as profiler:
    longest = 0, 0
    for _ in range(WARMUP + 3):
        train()
        longest = max(longest, timed(profiler.step))
    print(json.dumps(longest))
    train()
    profiler.step()
"""
_PROGRAMS = {"torch.profiler": _TORCH, "after a warm-up": _KINETOSCOPE, "without a warm-up": _KINETOSCOPE}
_OPTIONS = {"plain": {}, "with stacks": {"with_stack": True}}


def run(*, quick: bool) -> SuiteResult:
    """Start processes in turns; compare the medians of the opening of their first window."""
    times: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    for _ in range(2 if quick else 15):
        for kind, options in _OPTIONS.items():
            for way, program in _PROGRAMS.items():
                wall_ns, cpu_ns = _open_window(program.replace("WARMUP", str(int(way == "after a warm-up"))), options)
                times.setdefault(f"{way}, {kind}", []).append(wall_ns / 1e6)
                cpu.setdefault(f"{way}, {kind}", []).append(cpu_ns / 1e6)
    measures: list[Measure] = []
    for kind in _OPTIONS:
        stock = f"torch.profiler, {kind}"
        for way in list(_PROGRAMS)[1:]:
            name = f"{way}, {kind}"
            over_ms = statistics.median(times[name]) - statistics.median(times[stock])
            detail = (
                f"{statistics.median(times[name]):.0f} ms, torch {statistics.median(times[stock]):.0f} ms; CPU time "
                f"{statistics.median(cpu[name]):.0f} ms, torch {statistics.median(cpu[stock]):.0f} ms"
            )
            measures.append(Measure(f"first window over torch's first start(), {name}", over_ms, "ms", detail))
    return SuiteResult(
        suite="torch_first_window",
        title="opening the first window in a fresh process, inside a step",
        measures=measures,
        times_ns={},
    )


def _open_window(program: str, options: dict[str, bool]) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _PROGRAM + program, f"{folder}/run", json.dumps(options)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    wall_ns, cpu_ns = json.loads(done.stdout.splitlines()[-1])
    return wall_ns, cpu_ns
