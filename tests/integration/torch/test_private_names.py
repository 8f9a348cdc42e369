"""torch may drop any private name: training continues, and one sentence reports the loss."""

import json

import pytest
import torch

from kinetoscope.torch import private_names, profile
from support.fork_server import run_forked

# Before Kinetoscope is imported, as in a torch that never had the name.
TAKE_AWAY = """
import gzip, importlib, json, operator, sys, torch, torch.profiler
module, _, path = sys.argv[1].partition(":")
if path:
    owner = importlib.import_module(module)
    *owners, name = path.split(".")
    for part in owners:
        owner = getattr(owner, part)
    setattr(owner, name, None)
else:
    sys.modules[module] = None
"""
TRAIN = """
import kinetoscope
from pathlib import Path
model = torch.nn.Linear(4, 4)
steps = 0
schedule = kinetoscope.cyclic_schedule(warmup=0, active=2, repeat=1)
with kinetoscope.profile(sys.argv[2], schedule=schedule, quiet=True) as profiler:
    for batch in profiler.batches([torch.ones(2, 4)] * 5):
        with profiler.marker("forward"), kinetoscope.torch.record_function("named"):
            loss = model(batch).sum()
        loss.backward()
        steps += 1
assert steps == 5
trace = json.loads(gzip.decompress(next(Path(sys.argv[2]).glob("traces/ep*.json.gz")).read_bytes()))
print(json.dumps([event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]))
"""
CALLED_BY_TORCH = ("_run_on_profiler_start",)  # which therefore cannot be taken away alone
WITHOUT_OPERATORS = ("profile._prepare_trace", "profile._start_trace")


@pytest.mark.parametrize(
    "name",
    [f"{module}:{name}" for module, name in private_names.looked_up_names if name not in CALLED_BY_TORCH]
    + ["torch.profiler._memory_profiler"],
)
def test_training_continues_without_a_private_name_of_torch(name, tmp_path):
    done = run_forked(
        ("torch", "torch.profiler"), TAKE_AWAY + "import kinetoscope.torch\n" + TRAIN, name, tmp_path / "run"
    )
    assert done.returncode == 0, done.stderr
    names = json_names(done.stdout)
    assert "forward" in names
    assert ("aten::linear" in names) is (name.partition(":")[2] not in WITHOUT_OPERATORS)
    assert done.stderr.count("does not have") <= 1
    assert "Traceback" not in done.stderr


def test_recording_works_without_the_name_by_which_torch_starts_profilers(monkeypatch):
    monkeypatch.setattr(private_names, "run_on_profiler_start", None)
    with profile() as profiler:
        torch.ones(3) + 1
    assert "aten::add" in {event.name for event in profiler.events()}


WITH_A_GROUP = """
import json, sys, torch, torch.distributed as distributed
if sys.argv[2]:
    delattr(torch.autograd, sys.argv[2])
import kinetoscope.torch as ours
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
del distributed.distributed_c10d._get_all_pg_configs
del type(distributed.distributed_c10d._world).pg_config_info
observer = ours.ExecutionTraceObserver().register_callback(sys.argv[1] + "/execution.json")
with ours.profile(execution_trace_observer=observer) as profiler:
    torch.ones(2) + 1
profiler.export_chrome_trace(sys.argv[1] + "/trace.json")
print(json.dumps(list(json.load(open(sys.argv[1] + "/trace.json"))["distributedInfo"])))
"""


@pytest.mark.parametrize("also", ["", "_record_function_with_args_enter", "_record_function_with_args_exit"])
def test_without_the_names_of_process_groups_the_rank_is_known(tmp_path, also):
    done = run_forked(("torch", "torch.profiler"), WITH_A_GROUP, tmp_path, also)
    assert done.returncode == 0, done.stderr
    assert {"rank", "world_size"} <= set(json_names(done.stdout))
    assert "aten::add" in (tmp_path / "execution.json").read_text()


def json_names(printed):
    return json.loads(printed.splitlines()[-1])
