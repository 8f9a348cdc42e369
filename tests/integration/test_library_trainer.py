"""A script that leaves its loop to a library's trainer: findings name the trainer's function."""

import pytest

import kinetoscope
from support.fork_server import TORCH_COMPILE_MODULES, run_forked

pytest.importorskip("torch")
TRAINER = """
class Trainer:
    def __init__(self, model, batches):
        self.model, self.batches = model, batches

    def train(self):
        for batch in self.batches:
            self.training_step(batch)

    def training_step(self, batch):
        self.model(batch).sum().backward()
        self._log(range(1_000_000))  # many samples long, of Python alone: a call of C is sampled when it is over
        self.model(batch).sum().backward()

    def _log(self, rows):
        for row in rows: str(row)  # LOG
"""
SCRIPT = """
import torch
import kinetoscope
from some_trainer import Trainer

with kinetoscope.profile("run", diagnose=True, quiet=True, system=False) as profiler:
    batches = profiler.batches([torch.ones(8, 64)] * 13)
    Trainer(torch.nn.Linear(64, 64), batches).train()  # TRAIN
"""
AS_A_SCRIPT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
runpy.run_path("train.py", run_name="__main__")
"""


MAKES_OBJECTS = """
import gc

class Trainer:
    def __init__(self, model, batches):
        self.model, self.batches = model, batches

    def train(self):
        gc.set_threshold(10_000_000)  # so that only those of _collate come
        for batch in self.batches:
            self.model(batch).sum().backward()
            self._collate()

    def _collate(self):
        rows = [[row] for row in range(100_000)]
        gc.collect()  # COLLECT
"""


def line_of(text, mark):
    return next(number for number, line in enumerate(text.splitlines(), start=1) if mark in line)


def findings_of(trainer, folder):
    """Return the findings in a run of the script with this trainer."""
    library = folder / "lib" / "python3" / "site-packages"
    library.mkdir(parents=True)
    (library / "some_trainer.py").write_text(trainer)
    (folder / "train.py").write_text(SCRIPT)
    done = run_forked((*TORCH_COMPILE_MODULES, "kinetoscope.api"), AS_A_SCRIPT, library, folder=folder, timeout_s=300)
    assert done.returncode == 0, done.stderr
    return {finding.kind: finding for finding in kinetoscope.analyze(folder / "run", cache=False).findings}


def test_the_trainers_function_is_named_or_no_line_and_never_the_scripts(tmp_path):
    """No line where Python let the sampler read the stack only when the function was over."""
    found = findings_of(TRAINER, tmp_path)["python_overhead"]
    logging = f"some_trainer.py:{line_of(TRAINER, '# LOG')}"
    assert f"train.py:{line_of(SCRIPT, '# TRAIN')}" not in found.where.lines
    assert found.where.lines[:1] in ((), (logging,))
    on_line = f"{logging} (_log) takes most of this time." if found.where.lines else "The line is unknown: "
    assert on_line in found.advice


def test_both_are_named_for_gc_pauses_too(tmp_path):
    found = findings_of(MAKES_OBJECTS, tmp_path)["garbage_collection"]
    called, collecting = (
        f"train.py:{line_of(SCRIPT, '# TRAIN')}",
        f"some_trainer.py:{line_of(MAKES_OBJECTS, '# COLLECT')}",
    )
    assert found.where.lines[:2] == (called, collecting)
    assert found.advice.startswith(
        f"Move `gc.collect()` at {called}, mostly in _collate ({collecting}) out of the step"
    )
