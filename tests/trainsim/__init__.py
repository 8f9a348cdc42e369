"""A simulator of distributed training: it writes traces as Kineto does, and knows what is true of them.

    run = simulate(Settings(num_ranks=4, faults=(Fault(kind="late_host", ranks=(2,), cost_ns=5_000_000, every=3),)))
    run.write(folder)                              # a trace per rank
    run.truth.steps, run.truth.collectives         # what an analysis should find in them, to the nanosecond
    run.saving_ns_per_step(run.without(0))         # what a step gains without the first fault

`settings` says what a run is like; `scenarios` and `planted` draw it by chance. `program`, `model` and `writer` make
the program of a rank from `actions`, and `engine` runs it. `run` holds what came of it, `kineto` writes it, and `truth`
says what an analysis should find. `score` judges reports on runs of many scenarios.
"""

from trainsim.kineto import START_NS
from trainsim.planted import PlantedFault, PlantedRun, planted_run
from trainsim.run import RankRun, SimulatedRun, simulate
from trainsim.scenarios import healthy_settings, planted_settings, random_settings
from trainsim.settings import FINDINGS, Fault, FaultKind, Settings

__all__ = [
    "FINDINGS",
    "START_NS",
    "Fault",
    "FaultKind",
    "PlantedFault",
    "PlantedRun",
    "RankRun",
    "Settings",
    "SimulatedRun",
    "healthy_settings",
    "planted_run",
    "planted_settings",
    "random_settings",
    "simulate",
]
