"""Real recordings of one program, one after the other, on a machine that may be busy: nothing got slower."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import kinetoscope

NUM_PAIRS = int(os.environ.get("KINETOSCOPE_REAL_PAIRS", "0"))

PROGRAM = """
import sys, torch, kinetoscope
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU())))
optimizer = torch.optim.Adam(model.parameters())
batches = torch.randn(45, 64, 256)
schedule = kinetoscope.cyclic_schedule(skip_first=8, warmup=2, active=30, per="run")
with kinetoscope.profile(sys.argv[1], schedule=schedule, system=False, profile_memory=False, quiet=True) as profiler:
    for batch in profiler.batches(batches):
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
"""


def record(folder: Path) -> "kinetoscope.analysis.analyze.RunReport":
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return kinetoscope.analyze(folder, cache=False)


@pytest.mark.skipif(not NUM_PAIRS, reason="takes 10 seconds a pair: `make test-long` has 20")
@pytest.mark.timeout(120 * NUM_PAIRS)
def test_recordings_of_one_program_are_at_most_once_in_twenty_called_slower(tmp_path):
    num_wrong = 0
    for pair in range(NUM_PAIRS):
        found = kinetoscope.compare(*(record(tmp_path / f"{pair}-{place}") for place in range(2)))
        changed = [(row.kind, row.name, row.change) for row in found.worse]
        print(f"pair {pair}: the step is {found.step.verdict} ({found.step.change:+.1%}); worse: {changed}")
        assert not any(row.verdict in ("new", "gone") for row in found.rows)
        num_wrong += bool(changed)
    assert num_wrong <= NUM_PAIRS / 20
