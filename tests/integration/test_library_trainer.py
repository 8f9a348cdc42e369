"""A script that leaves its loop to a library's trainer: findings name its line and the trainer's function."""

import os
import subprocess
import sys

import pytest

import kinetoscope

pytest.importorskip("torch")
TRAINER = """
import json

class Trainer:
    def __init__(self, model, batches):
        self.model, self.batches = model, batches

    def train(self):
        for batch in self.batches:
            self.training_step(batch)

    def training_step(self, batch):
        self.model(batch).sum().backward()
        self._log(range(100_000))
        self.model(batch).sum().backward()

    def _log(self, rows):
        json.dumps([{"row": row} for row in rows])  # LOG
"""
SCRIPT = """
import torch
import kinetoscope
from some_trainer import Trainer

with kinetoscope.profile("run", diagnose=True, quiet=True, system=False) as profiler:
    batches = profiler.batches([torch.ones(8, 64)] * 13)
    Trainer(torch.nn.Linear(64, 64), batches).train()  # TRAIN
"""


def line_of(text, mark):
    return next(number for number, line in enumerate(text.splitlines(), start=1) if mark in line)


def test_both_the_scripts_line_and_the_trainers_function_are_named(tmp_path):
    library = tmp_path / "lib" / "python3" / "site-packages"
    library.mkdir(parents=True)
    (library / "some_trainer.py").write_text(TRAINER)
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(library), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, check=True, timeout=300)
    findings = kinetoscope.analyze(tmp_path / "run", cache=False).findings
    found = next(finding for finding in findings if finding.kind == "python_overhead")
    assert found.where.lines[0] == f"train.py:{line_of(SCRIPT, '# TRAIN')}"
    logging = f"some_trainer.py:{line_of(TRAINER, '# LOG')}"
    assert found.where.lines[1] == logging
    assert f"mostly in _log ({logging}). " in found.advice
