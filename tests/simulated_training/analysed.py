"""A simulated run with the report on its traces."""

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import kinetoscope
from simulated_training.run import SimulatedRun, simulate
from simulated_training.settings import Settings

if TYPE_CHECKING:
    from kinetoscope.analysis.analyze import RunReport


@lru_cache(maxsize=64)
def analysed(settings: Settings) -> "tuple[SimulatedRun, RunReport]":
    """The run and its report, made once for all tests of a process that ask for it."""
    run = simulate(settings)
    with tempfile.TemporaryDirectory() as folder:
        run.write(Path(folder))
        return run, kinetoscope.analyze(folder, cache=False)
