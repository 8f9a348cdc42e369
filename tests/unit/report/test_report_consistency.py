"""Step time and its breakdown: the same in the terminal, on the page, in a notebook and in ``--json``."""

from pathlib import Path

import pytest

import kinetoscope
from support.report_consistency import assert_consistent_report, screen
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

_DATA = Path(__file__).parents[4] / "shared" / "data"
_RUNS = {
    "two ranks on a device": Settings(faults=(Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000, every=3),)),
    "without a device": Settings(has_device=False, step_spans="event/batch", evaluates_every=3),
    "a device that the loop never waits for": Settings(num_ranks=1, reads_loss="never", num_steps=14),
    "three windows": Settings(num_ranks=1, num_cycles=3, num_steps=4, step_spans="event/batch"),
    "one step": Settings(num_ranks=1, num_steps=1),
    "two steps": Settings(num_steps=2),
    "forward and backward in the optimizer's closure": Settings(num_ranks=1, num_closure_calls=2),
    "without torch": Settings(num_ranks=1, has_device=False, has_torch=False, step_spans="event/batch"),
    "a CUDA graph": Settings(num_ranks=1, has_cuda_graph=True),
    "copies beside": Settings(num_ranks=1, has_copies_beside=True, reads_loss="never"),
}
_OF_OTHERS = (
    *("v100_one_rank_five_steps.json.gz", "a100_alexnet_cuda_sync.json.gz", "v100_resnet50_old_schema.json.gz"),
    *("a100_128_ranks_rank0.json.gz", "a100_128_ranks_rank1.json.gz"),
)


@pytest.mark.parametrize("kind", _RUNS)
def test_a_simulated_run_has_the_same_numbers_everywhere(kind):
    assert_consistent_report(analyze_cached(_RUNS[kind])[1])


@pytest.mark.parametrize("name", _OF_OTHERS)
def test_a_gpu_trace_of_somebody_else_has_the_same_numbers_everywhere(name):
    if not (_DATA / name).exists():
        pytest.skip(f"{name} is not beside the repository")
    assert_consistent_report(kinetoscope.analyze(_DATA / name, cache=False))


def test_gpu_bound_step_is_reported_with_the_cpu_run_ahead():
    report = analyze_cached(_RUNS["a device that the loop never waits for"])[1]
    head = screen(report)
    assert report.run["bound_by"] == "compute"
    assert head[0].endswith(" ms/step, compute-bound (GPU)")
    bars = [index for index, line in enumerate(head) if line.startswith(("CPU  ", "GPU  "))]
    assert "CPU run-ahead" in head[bars[0] + 1]
    assert "idle" in head[bars[1] + 1]
