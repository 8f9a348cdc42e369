"""torch and CPython may drop private names: training continues, and one sentence reports the loss."""

import pytest

from kinetoscope.core.background.private_names import names
from kinetoscope.hooks import private_names as of_hooks
from kinetoscope.recording import private_names as of_recording
from kinetoscope.sources import private_names as of_sources
from support.fork_server import TORCH_COMPILE_MODULES, run_forked
from support.trace_files import trace_json

pytest.importorskip("torch")

PREPARED = (
    *(*TORCH_COMPILE_MODULES, "torch.profiler", "torch.distributed", "support.torch_compile_warmup"),
    *("kinetoscope.api", "kinetoscope.handlers.trackers", "kinetoscope.sources.torch_profiler"),
    *map("kinetoscope.sources.{}".format, ("compile_events", "gc_pauses", "growing_memory", "float64_tensors")),
    *map("kinetoscope.sources.{}".format, ("loader_facts", "stack_sampler")),
)
"""Slow imports. None of them looks a name up on import: that name would be found, and not reported."""
# As with a version that has another name for it: our code finds nothing, and the library works.
RENAMED = """
import sys, kinetoscope.hooks.private_names, kinetoscope.recording.private_names, kinetoscope.sources.private_names
from kinetoscope.core.background.private_names import names
for name in names:
    if str(name) == sys.argv[1]:
        name.name, name.attribute = f"{name.name}_renamed", f"{name.attribute}_renamed"
"""
TRAIN = """
import torch, kinetoscope

def train(out):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    loader = torch.utils.data.DataLoader(torch.ones(11, 4), batch_size=2, num_workers=1)
    held_out = torch.utils.data.DataLoader(torch.ones(1, 4))
    losses, steps = [], 0
    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=4, per="run")
    with kinetoscope.profile(out, schedule=schedule, diagnose=True, with_stack=True, quiet=True) as profiler:
        inside = profiler.marker("ready-made")

        @torch.compile(backend="eager", dynamic=False)
        def compiled(rows):
            with inside:
                return 2 * rows

        for batch in profiler.batches(loader):
            with profiler.marker("forward"):
                losses.append(model(compiled(batch)).sum())
            losses[-1].backward(retain_graph=True)
            assert len(list(held_out)) == 1
            steps += 1
    assert steps == 6 and len(losses) == 6
"""
ALONE = """
sys.path.insert(0, sys.argv[3])
from loop import train
train(sys.argv[2])
"""
WITH_ANOTHER_RANK = """
import os, torch.distributed
os.environ["MASTER_PORT"] = "29500"  # names the launch, which ranks that fork each other could not know
child = os.fork()
store = "file://" + sys.argv[2] + "-store"
torch.distributed.init_process_group("gloo", init_method=store, rank=int(child == 0), world_size=2)
sys.path.insert(0, sys.argv[3])
from loop import train
train(sys.argv[2])
torch.distributed.destroy_process_group()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def run_without(name, out, program=ALONE):
    (out.parent / "loop.py").write_text(TRAIN)
    done = run_forked(PREPARED, RENAMED + program, name, out, out.parent)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "switched off" not in done.stderr
    return done.stderr, [events_of(path) for path in sorted(out.glob("traces/ep*.json.gz"))]


def events_of(path):
    return trace_json(path)["traceEvents"]


def names_of(events):
    return {event["name"] for event in events if event["ph"] in "Xi"}


OF_RANKS = str(of_recording.default_store)
OF_HANGS = str(of_recording.dump_flight_recorder)  # it is only called at a hang
IN_ONE_PROCESS = [str(name) for name in names if str(name) not in (OF_RANKS, OF_HANGS)]
WITHOUT_COMPILATIONS = [str(name) for name in (*of_recording.in_dynamo, *of_sources.compilation_callbacks)]


def test_nothing_is_reported_and_everything_recorded_if_all_names_exist(tmp_path):
    output, (events,) = run_without("", tmp_path / "run")
    assert "does not have" not in output
    found = names_of(events)
    assert {"forward", "aten::linear", "DataLoader", "compile/compiled", "memory holders were scanned"} <= found


@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_training_continues_without_a_private_name_with_one_sentence_on_the_loss(name, tmp_path):
    output, (events,) = run_without(name, tmp_path / "run")
    assert output.count(f"does not have {name}_renamed, so ") == output.count("does not have") == 1
    found = names_of(events)
    assert {"forward", "aten::linear"} <= found
    assert any("sampled every" in text for text in found) is (name != str(of_recording.frames_of_threads))
    assert ("DataLoader" in found) is (name != str(of_hooks.loader_iterator))
    assert any(text.startswith("compile/") for text in found) is (name not in WITHOUT_COMPILATIONS)


def test_without_the_store_of_torch_ranks_train_and_each_says_what_is_lost(tmp_path):
    output, traces = run_without(OF_RANKS, tmp_path / "run", program=WITH_ANOTHER_RANK)
    assert output.count(f"does not have {OF_RANKS}_renamed, so ") == output.count("does not have") == 2
    assert [{"forward", "aten::linear"} <= names_of(events) for events in traces] == [True, True]


IN_A_HANG = """
import os, torch.distributed
os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}-store", rank=0, world_size=1)
torch.distributed.all_reduce(torch.ones(1))
from kinetoscope.recording.process_groups import read_group_states
print([(group.sequence, group.collective) for group in read_group_states()])
"""


@pytest.mark.parametrize("name", ["", OF_HANGS])
def test_a_hang_says_how_far_each_group_is_also_without_the_flight_recorder(name, tmp_path):
    done = run_forked(PREPARED, RENAMED + IN_A_HANG, name, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("does not have") == bool(name)
    assert done.stdout.strip() == ("[(1, '')]" if name else "[(1, 'gloo:all_reduce')]")
