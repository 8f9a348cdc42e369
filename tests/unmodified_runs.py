"""Runs trainings that know nothing of us, with and without `kinetoscope run`."""

import os
import subprocess
import sysconfig
from pathlib import Path

BIN = Path(sysconfig.get_path("scripts"))
KINETOSCOPE = str(BIN / "kinetoscope")


def run(*command, folder, **options):
    environment = {**os.environ, **options.pop("environment", {})}
    return subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=150, **options
    )


def num_steps_told(done):
    """How many steps a training says that it took."""
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("steps")]
    return int(line.split()[1])


def lines_added(ours, plain):
    """What is on stderr only with `kinetoscope run`, but for torch's warnings, which have the time."""
    added = [line for line in ours.stderr.splitlines() if line not in plain.stderr.splitlines()]
    return [line for line in added if not line.startswith(("W1", "W0"))]


def frame_of(folder):
    """All steps of a run."""
    from kinetoscope.table.all_steps import frame_of_steps, pulses_of

    return frame_of_steps(pulses_of(folder))
