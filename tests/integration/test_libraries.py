"""`kinetoscope run` with libraries that train several times or step no torch optimizer: `make test-trainers`."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from support.autoinstrumented_runs import KINETOSCOPE, frame_of, run, run_recorded

pytest.importorskip("torch")

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "libraries.py"
HAS_ALL = os.environ.get("KINETOSCOPE_REQUIRE_TRAINERS") == "1"
STEPS = {
    "optuna": [24] * 4,
    "sklearn": [24] * 4,
    "sklearn in two processes": [24] * 4,
    "sklearn folds": [24] * 4,
    "hydra": [24] * 4,
    "fastai": [48],
    "keras": [48],
}
IN_ONE_PROCESS = ("sklearn", "sklearn folds")
"""Kinds that start where torch is imported already."""


@pytest.fixture(autouse=True)
def its_library_is_here(kind):
    library = kind.split()[0]
    if importlib.util.find_spec(library) is None:
        assert not HAS_ALL, f"{library} is missing"
        pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize("kind", STEPS)
def test_each_training_run_of_a_library_is_found_with_all_its_steps(kind, tmp_path):
    if kind in IN_ONE_PROCESS:
        done = run_recorded("-o", "run", command=[PROGRAM, kind], folder=tmp_path)
    else:
        done = run(KINETOSCOPE, "run", "-o", "run", sys.executable, PROGRAM, kind, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    pulses = sorted(folder.parent for pattern in ("run*/pulse", "run*/*/pulse") for folder in tmp_path.glob(pattern))
    assert [len(frame_of(folder)) for folder in pulses] == STEPS[kind]
    assert "nothing was recorded" not in done.stderr


@pytest.mark.parametrize("kind", ["thinc"])
def test_a_library_without_torchs_optimizers_and_loaders_is_reported_in_one_line(kind, tmp_path):
    done = run(KINETOSCOPE, "run", "-o", "run", sys.executable, PROGRAM, kind, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "nothing was recorded" in line]
    assert "0 optimizer steps, 0 fetches and 24 backward passes" in line
