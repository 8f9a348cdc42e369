"""Runs of uninstrumented training scripts, with and without `kinetoscope run`."""

import os
import subprocess
import sysconfig
from pathlib import Path

from support.fork_server import TORCH_COMPILE_MODULES, Running, run_command, start_forked

BIN = Path(sysconfig.get_path("scripts"))
KINETOSCOPE = str(BIN / "kinetoscope")
UNINSTRUMENTED = Path(__file__).parent / "programs" / "uninstrumented.py"
_RECORDED = (*TORCH_COMPILE_MODULES, "kinetoscope.autoinstrument.instrumentation", "kinetoscope.sources.torch_profiler")
_AS_A_SCRIPT = """
import runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_AS_A_RECORDED_SCRIPT = "import kinetoscope.auto" + _AS_A_SCRIPT


def run(*command, folder, **options):
    environment = {**os.environ, **options.pop("environment", {})}
    return subprocess.run([*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, **options)


def run_script(script, *arguments, folder):
    """Run a script where torch is imported already, three seconds faster than `run` with another Python."""
    return start_forked(TORCH_COMPILE_MODULES, _AS_A_SCRIPT, script, *arguments, folder=folder).wait()


def run_recorded(*options, command, folder, environment=None, finalizes=False):
    """Run a script with its arguments below `kinetoscope run` with these options, where torch is imported already.

    Tests of the instrumentation of a new Python process use `run`.
    """
    variables = environment_of(*options, folder=folder, environment=environment)
    return start_recorded(variables, command, folder, finalizes=finalizes).wait()


def environment_of(*options, folder, environment=None):
    """Return the environment that `kinetoscope run` with these options gives to its command."""
    before = {**os.environ, **(environment or {})}
    done = run_command("run", *options, "env", "-0", folder=folder, environment=before)
    assert done.returncode == 0, done.stderr
    return dict(variable.split("=", 1) for variable in done.stdout.split("\0")[:-1])


def start_recorded(environment, command, folder, *, finalizes=False) -> Running:
    """Start one training run below `kinetoscope run`, which gave it this environment."""
    where = {"folder": folder, "environment": environment, "finalizes": finalizes}
    return start_forked(_RECORDED, _AS_A_RECORDED_SCRIPT, *command, **where)


def num_printed_steps(done):
    """Return the number of steps that a training run printed."""
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("steps")]
    return int(line.split()[1])


def lines_of_training(done):
    """Return the lines in which a training run reports its losses and steps."""
    return [line for line in done.stdout.splitlines() if line.startswith(("steps", "graphs"))]


def lines_added(profiled, plain):
    """Return the lines of stderr only with `kinetoscope run`, without torch's warnings, which have the time."""
    added = [line for line in profiled.stderr.splitlines() if line not in plain.stderr.splitlines()]
    return [line for line in added if not line.startswith(("W1", "W0"))]


def frame_of(folder):
    """Return all steps of a run."""
    from kinetoscope.frames.all_steps import build_steps_frame, find_run_pulses

    return build_steps_frame(find_run_pulses(folder))
