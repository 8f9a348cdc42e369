"""Two real ranks on CPU: who is late, how often, what that costs, and what lies between steps."""

import json
import os
from pathlib import Path

import pytest

import kinetoscope
from support.fork_server import start_with_torch

pytest.importorskip("torch")
PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "gloo_straggler.py"
NUM_STEPS, EVERY, LATE_RANK, SLEEP_NS = 40, 3, 1, 20_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The report on both ranks, and when each came to the backward pass of each step."""
    folder = tmp_path_factory.mktemp("gloo")
    arguments = (PROGRAM.read_text(), folder / "run", folder / "meeting_place")
    quiet = {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in (0, 1)]
    started = [start_with_torch(*arguments, environment=os.environ | quiet | rank) for rank in ranks]
    for done in [rank.wait(150) for rank in started]:
        assert done.returncode == 0, done.stderr
    came_ns = [json.loads((folder / f"meeting_place-rank{rank}").read_text()) for rank in (0, 1)]
    return kinetoscope.analyze(folder / "run", cache=False), came_ns


def test_rank_sleeping_in_every_third_step_is_named_with_period_cause_and_cost(run):
    report, came_ns = run
    late_by_ns = {row.step: came_ns[LATE_RANK][row.step] - came_ns[0][row.step] for row in report.steps}
    by_chance_ns = max(abs(late_ns) for step, late_ns in late_by_ns.items() if step % EVERY)
    if by_chance_ns > SLEEP_NS / 4:
        pytest.skip(f"the machine is busy: it made a rank late by {by_chance_ns / 1e6:.0f} ms that did not sleep")
    worst = report.stragglers[0]
    assert (worst.rank, worst.cause, worst.period) == (LATE_RANK, "host", EVERY)
    truth_ns = sum(late_ns for step, late_ns in late_by_ns.items() if step % EVERY == 0) / report.run["num_steps"]
    assert worst.cost_ns_per_step == pytest.approx(truth_ns, rel=0.2)


def test_sleep_between_steps_is_time_between_steps(run):
    report, _ = run
    for rank in (0, 1):
        rows = [row for row in report.steps if row.rank == rank and row.between_ns is not None]
        assert len(rows) >= NUM_STEPS - 1
        assert all(row.between_ns >= 0.95 * SLEEP_NS for row in rows)
