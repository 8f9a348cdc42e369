"""Real ranks on CPU that divide their work by stages, layers or exchanges: the rank that sleeps is named, and why."""

import os
from pathlib import Path

import pytest

import kinetoscope
from support.fork_server import start_with_torch

pytest.importorskip("torch.distributed.pipelining")
PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "gloo_parallelism.py"


def report_on(name, late_rank, folder, num_ranks=3):
    """Return the report on a run in which a rank sleeps 200 ms or more in each step."""
    arguments = (PROGRAM.read_text(), name, late_rank, folder / "run", folder / "meeting_place")
    quiet = {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks)} for rank in range(num_ranks)]
    started = [start_with_torch(*arguments, environment=os.environ | quiet | rank) for rank in ranks]
    for done in [rank.wait(150) for rank in started]:
        assert done.returncode == 0, done.stderr
    return kinetoscope.analyze(folder / "run", cache=False)


@pytest.mark.parametrize(("name", "stage"), [("1F1B", 1), ("GPipe", 2)])
def test_a_stage_that_sleeps_is_named_with_its_rank_and_cause(name, stage, tmp_path):
    report = report_on(name, stage, tmp_path)
    first = report.findings[0]
    assert (first.kind, first.where.ranks) == ("straggler", (stage,))
    assert f"stage {stage} (rank {stage})" in first.title
    assert [row.cause for row in report.stragglers if row.rank == stage] == ["host"]
    assert "Move layers" in first.advice
    assert first.saving_ns_per_step


def test_a_rank_that_sleeps_between_unequal_all_to_alls_is_named_with_its_cause(tmp_path):
    report = report_on("all_to_all", 2, tmp_path)
    first = report.findings[0]
    assert (first.kind, first.where.ranks) == ("straggler", (2,))
    assert [row.cause for row in report.stragglers if row.rank == 2] == ["host"]


@pytest.mark.parametrize("source", ["traces", "traces/merged_trace.json.gz"])
def test_a_rank_that_sleeps_in_a_tensor_parallel_group_is_named_with_its_group(source, tensor_parallel_run):
    """Ranks 0 and 1 share each layer, as do 2 and 3. Rank 0 waits for rank 1, and ranks 2 and 3 wait for both."""
    report = kinetoscope.analyze(tensor_parallel_run / source, cache=False)
    first = report.findings[0]
    assert (first.kind, first.where.ranks) == ("straggler", (1,))
    assert first.title.startswith("Straggler: rank 1 (tp group) delays every step")
    late, *others = report.stragglers
    assert (late.rank, late.cause) == (1, "host")
    assert all(row.cost_ns_per_step < late.cost_ns_per_step / 2 for row in others), "rank 0 is as late without its wait"
    assert {call.ranks for call in report.collectives if call.num_ranks > 1} == {(0, 1), (2, 3), (0, 2), (1, 3)}


@pytest.fixture(scope="module")
def tensor_parallel_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensor_parallel")
    report_on("tensor", 1, folder, num_ranks=4)
    return folder / "run"
