"""Runs of an unmodified training loop in this process: their windows, steps and evaluations."""

import time

import pytest

from kinetoscope.autoinstrument.instrumentation import AutoInstrumentation, ProcessRuns
from kinetoscope.autoinstrument.settings import AutoSettings
from kinetoscope.autoinstrument.trial_files import TrialSettings
from support.autoinstrumented_runs import frame_of

torch = pytest.importorskip("torch")


def test_only_the_first_run_is_reported_and_later_ones_skip_fewer_steps(tmp_path):
    runs = ProcessRuns(AutoSettings(out=str(tmp_path / "run")))
    settings = [runs.make(number, num_past).lifecycle.settings for number, num_past in ((1, 0), (2, 4), (3, 50))]
    assert [one.schedule.plan.skip_first for one in settings] == [10, 6, 0]
    assert {one.schedule.plan.active for one in settings} == {10}
    assert [one.is_quiet for one in settings] == [False, True, True]


class Script:
    """The parts of a training script."""

    def __init__(self):
        self.loader = torch.utils.data.DataLoader(torch.ones(6))
        self.model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def step(self, batch):
        self.model(batch[None]).sum().backward()
        self.optimizer.step()

    def evaluate(self):
        with torch.no_grad():
            for _ in self.loader:
                pass


def train(folder, loop):
    """Run a loop as below `kinetoscope run`; return the frame of its steps. A trial records nothing else."""
    settings, reasons = AutoSettings(out=str(folder), trial=TrialSettings(folder=str(folder))), []
    instrumentation, script = AutoInstrumentation(ProcessRuns(settings).make, reasons.append), Script()
    instrumentation.watch()
    try:
        loop(script)
    finally:
        instrumentation.end()
    assert not reasons
    return frame_of(folder)


def train_and_evaluate(script):
    for _ in range(2):
        for batch in script.loader:
            script.step(batch)
        script.evaluate()


def break_out(script):
    for number, batch in enumerate(script.loader):
        script.step(batch)
        if number == 2:
            break


def accumulate(script):
    for number, batch in enumerate(script.loader):
        script.model(batch[None]).sum().backward()
        if number % 2:
            script.optimizer.step()


def train_in_memory(script):
    for _ in range(5):
        script.step(torch.ones(1))


@pytest.mark.parametrize(
    ("loop", "num_steps", "evaluated"),
    [(train_and_evaluate, 12, [6]), (break_out, 3, []), (accumulate, 3, []), (train_in_memory, 5, [])],
)
def test_each_step_is_counted_and_evaluations_are_separate(tmp_path, loop, num_steps, evaluated):
    steps = train(tmp_path, loop)
    assert steps["step"].to_list() == list(range(num_steps))
    assert [step for step, time_ns in steps.select("step", "evaluation_ns").iter_rows() if time_ns] == evaluated


def test_the_last_step_ends_with_the_optimizer_whatever_follows_the_loop(tmp_path):
    after = []

    def loop(script):
        batches = iter(script.loader)
        for _ in range(3):
            script.step(next(batches))
        after.append(time.time_ns())
        while time.time_ns() < after[0] + 20_000_000:  # while the iterator exists
            pass

    last = train(tmp_path, loop).row(-1, named=True)
    assert last["step"] == 2
    assert last["begin_ns"] + last["duration_ns"] < after[0] + 10_000_000
