"""Our names in place of torch.profiler's: programs that use them still work."""

import inspect

import pytest
import torch.profiler
import torch.profiler.profiler

import kinetoscope.torch
from support.fork_server import run_with_torch
from support.torch_versions import as_in_2_13

SEMI_PUBLIC = ("PROFILER_STEP_NAME", "_ExperimentalConfig", "_ITraceObserver", "_KinetoProfile", "_WARNINGS_SHOWN")
ATTRIBUTES = [
    "profiler",
    "current_action",
    "action_map",
    "step_num",
    "record_steps",
    "step_rec_fn",
    "has_cudagraphs",
    "preset_metadata",
    "mem_tl",
    "use_device",
    "activities",
    "activity_filters",
    "on_trace_ready",
    "schedule",
    "execution_trace_observer",
]
ADDED = [("include_python_functions", inspect.Parameter.POSITIONAL_OR_KEYWORD, True)]
NEWER_THAN_2_13 = {"CuspyConfig", "PerformanceMetricsConfig", "ProfilerActivityConfig"}
MODULES = (torch.profiler, torch.profiler.profiler)

REPLACE = """
import sys, torch, torch.profiler, torch.profiler.profiler as inner, kinetoscope.torch as ours
for name in [*ours.__all__, *ours.SEMI_PUBLIC]:
    for module in (torch.profiler, inner):
        if hasattr(module, name):
            setattr(module, name, getattr(ours, name))
"""
PROGRAMS = {
    "a scheduled loop with a handler": """
from torch.profiler import profile, schedule, tensorboard_trace_handler, ProfilerActivity, record_function
import tempfile, os
with tempfile.TemporaryDirectory() as folder:
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
                 on_trace_ready=tensorboard_trace_handler(folder), record_shapes=True, with_stack=True) as p:
        for _ in range(5):
            with record_function("forward"):
                torch.ones(3) + 1
            p.step()
    assert len(os.listdir(folder)) == 1
    assert "forward" in p.key_averages().table()
""",
    "torch's own pattern matcher": """
from torch.profiler._pattern_matcher import report_all_anti_patterns
with torch.profiler.profile(with_stack=True, record_shapes=True) as p:
    torch.ones(3) + 1
report_all_anti_patterns(p, print_enable=False)
""",
    "torch's own memory profile": """
from torch.profiler._memory_profiler import MemoryProfile
with torch.profiler.profile(with_stack=True, record_shapes=True, profile_memory=True) as p:
    torch.nn.Linear(3, 3)(torch.ones(2, 3)).sum().backward()
assert isinstance(p._memory_profile(), MemoryProfile) and p._memory_profile().timeline
""",
    "torch's own evaluation of the event tree": """
from torch.profiler._utils import BasicEvaluation
with torch.profiler.profile() as p:
    torch.ones(3) + 1
assert BasicEvaluation(p.profiler).events
""",
    "a compiled function inside and outside": """
with torch.profiler.profile() as p:
    def step(x):
        with torch.profiler.record_function("inside"):
            return x + 1
    torch.compile(step, backend="eager", fullgraph=True)(torch.ones(2))
assert p.events()
""",
    "a subclass of the semi-public base": """
class Mine(inner._KinetoProfile):
    def start(self):
        super().start()
        self.add_metadata("mine", "yes")
p = Mine(record_shapes=True)
p.start()
torch.ones(3) + 1
p.stop()
assert p.key_averages()
""",
    "an observer of one's own": """
class Mine(inner._ITraceObserver):
    calls = []
    def start(self): self.calls.append("start")
    def stop(self): self.calls.append("stop")
    def cleanup(self): self.calls.append("cleanup")
with torch.profiler.profile(execution_trace_observer=Mine()):
    torch.ones(3) + 1
assert Mine.calls == ["start", "stop", "cleanup"]
""",
    "a warning that is given once": """
import warnings
getattr(inner, "_WARNINGS_SHOWN", set()).clear()
with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1)) as p:
        for _ in range(8):
            p.step()
assert sum("clears events at the end of each cycle" in str(warning.message) for warning in shown) == 1
""",
}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_everything_that_torch_exports_there_we_have_too(module):
    assert set(module.__all__) - NEWER_THAN_2_13 <= set(kinetoscope.torch.__all__)


def test_the_semi_public_names_are_there():
    assert set(SEMI_PUBLIC) == set(kinetoscope.torch.SEMI_PUBLIC)
    assert all(hasattr(kinetoscope.torch, name) for name in SEMI_PUBLIC)


@as_in_2_13
@pytest.mark.parametrize("name", [*torch.profiler.__all__, "_KinetoProfile"])
def test_functions_and_constructors_take_the_same_arguments(name):
    replacement, stock = getattr(kinetoscope.torch, name), getattr(torch.profiler, name)
    if replacement is not stock and name != "kineto_available":  # torch's is a builtin without a signature
        assert parameters(replacement) == parameters(stock)


@as_in_2_13
@pytest.mark.parametrize("name", ["profile", "_KinetoProfile", "ExecutionTraceObserver"])
def test_public_methods_are_all_there_with_the_same_arguments(name):
    replacement, stock = getattr(kinetoscope.torch, name), getattr(torch.profiler, name)
    for method, function in inspect.getmembers(stock, inspect.isfunction):
        if method == "export_memory_timeline":  # ours is not deprecated: see below
            continue
        if not method.startswith("_") or method in ("_memory_profile", "_stats"):
            own = parameters(getattr(replacement, method))
            assert [name for name in own if name not in ADDED] == parameters(function), method


def parameters(function) -> list[tuple]:
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(function).parameters.values()
        if each.name != "_"
    ]


GONE = [
    ("torch.profiler._pattern_matcher", "report_all_anti_patterns"),
    ("torch.profiler._utils", "BasicEvaluation"),
    ("torch.profiler.profiler", "_WARNINGS_SHOWN"),
]
"""Names that newer or older versions of torch lack."""


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "stock"])
def test_a_program_that_uses_the_names_works(program, replaced):
    for module, name in GONE:
        if name in program:
            found = pytest.importorskip(module)
            if not hasattr(found, name):
                pytest.skip(f"torch {torch.__version__} has no {name}")
    source = REPLACE if replaced else "import torch, torch.profiler, torch.profiler.profiler as inner\n"
    done = run_with_torch(source + program)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_attributes_that_programs_look_at_are_there():
    profiler = kinetoscope.torch.profile(record_shapes=True)
    for name in ATTRIBUTES:
        assert hasattr(profiler, name), name
    with profiler:
        torch.ones(3)
    assert profiler.profiler.kineto_results.events()
    assert profiler._stats().profiler_enable_call_duration_us > 0
    assert profiler._get_distributed_info() is None


def test_observer_and_memory_profile_have_the_attributes_of_torchs_own_tests(tmp_path):
    observer = kinetoscope.torch.ExecutionTraceObserver().register_callback(str(tmp_path / "trace.json"))
    observer.start()
    assert observer._execution_trace_running
    observer.cleanup()
    assert not observer._execution_trace_running
    with kinetoscope.torch.profile(record_shapes=True, with_stack=True) as profiler:
        pass
    with pytest.raises(ValueError, match=r"^profile_memory=True required for memory profiling\.$"):
        profiler._memory_profile()
