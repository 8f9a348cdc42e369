"""Code after a training loop is no part of its last step, also while the loop's iterator still exists."""

import polars as pl
import pytest

import kinetoscope
from support.autoinstrumented_runs import frame_of, run_recorded

SCRIPT = """
import threading, time, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = iter(DataLoader(TensorDataset(torch.randn(1000, 64)), batch_size=10))

def train():
    for number in range(20):
        (batch,) = next(batches)
        model(batch).square().mean().backward()
        optimizer.step()

def evaluate():
    print("loop left", time.time_ns())
    with torch.no_grad():
        for number in range(20):
            model(torch.randn(10, 64))
            time.sleep(0.1)
"""
ENDS = {
    "at module level": "train()\nevaluate()\n",
    "in a function": "def main():\n    train()\n    evaluate()\nmain()\n",
    "on a thread": "trainer = threading.Thread(target=train)\ntrainer.start()\ntrainer.join()\nevaluate()\n",
}
WINDOWS = {"before the window": 1000, "in an open window": 12}


@pytest.mark.parametrize("way", ENDS)
@pytest.mark.parametrize("window", WINDOWS)
def test_an_evaluation_by_hand_after_the_loop_is_in_no_step(way, window, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT + ENDS[way])
    done = run_recorded("--after", WINDOWS[window], "-o", "run", command=["train.py"], folder=tmp_path)
    left_ns = int(done.stdout.split("loop left")[1])
    steps = frame_of(tmp_path / "run")
    assert len(steps) == 20
    assert _last_end_ns(steps) < left_ns + 1_000_000_000, done.stderr
    if window == "in an open window":
        recorded = kinetoscope.analyze(tmp_path / "run").frame("steps").filter(pl.col("step") == 19)
        assert _last_end_ns(recorded) < left_ns + 1_000_000_000


def _last_end_ns(steps):
    return max(begin_ns + duration_ns for begin_ns, duration_ns in steps.select("begin_ns", "duration_ns").iter_rows())
