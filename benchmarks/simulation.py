"""benchmarks: the simulator of trainings, which is with the tests."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def simulation() -> Any:
    """The package, with `Settings` and `simulate`."""
    if (tests := str(Path(__file__).parents[1] / "tests")) not in sys.path:
        sys.path.insert(0, tests)
    return import_module("simulated_training")
