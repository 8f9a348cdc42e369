"""Real ranks on CPU whose operators are not recorded: a rank that is slow in its backward pass is named."""

import os
from pathlib import Path

import pytest

import kinetoscope
from support.fork_server import start_with_torch

pytest.importorskip("torch.distributed")
PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "gloo_slow_backward.py"
AS_A_SCRIPT = """
import runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", ["function", "hook"])
def test_a_rank_that_sleeps_in_its_backward_pass_is_named_with_the_phase(name, tmp_path):
    """DDP waits within backward, which takes equally long on both ranks."""
    arguments = (AS_A_SCRIPT, PROGRAM, name, 1, tmp_path / "run", tmp_path / "meeting_place")
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    started = [start_with_torch(*arguments, environment=os.environ | {"OMP_NUM_THREADS": "1"} | rank) for rank in ranks]
    for done in [rank.wait(150) for rank in started]:
        assert done.returncode == 0, done.stderr
    report = kinetoscope.analyze(tmp_path / "run", cache=False)
    first = report.findings[0]
    assert (first.kind, first.where.ranks) == ("straggler", (1,))
    assert "in backward)" in first.title
    assert first.where.spans == (("scale gradients",) if name == "hook" else ())
    assert report.stragglers[0].rank == 1
    assert not [finding for finding in report.findings[1:] if finding.kind == "blocked" and finding.confidence != "low"]
