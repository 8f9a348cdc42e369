"""Runs with one or two faults drawn by chance, of any kind and size, and what a finding on each must say."""

import random
from typing import NamedTuple

from trainsim.scenarios import fault_of
from trainsim.settings import FINDINGS, Fault, FaultKind, Layout, Settings

_STRAGGLER_FAULTS: tuple[FaultKind, ...] = ("late_host", "late_device", "slow_loader")
_HOST_FAULTS: tuple[FaultKind, ...] = (
    "slow_loader",
    "gc",
    "leak",
    "slow_python",
    "recompilation",
    "float64",
    "profiler_cost",
)
_DEVICE_FAULTS: tuple[FaultKind, ...] = (
    "items",
    "pageable_copies",
    "small_kernels",
    "slow_launches",
    "float32",
    "idle_gaps",
)


class PlantedFault(NamedTuple):
    """One planted problem: the indices of its faults in the settings, the kind of its finding, and the late ranks, each
    with a fault."""

    places: tuple[int, ...]
    finding: str
    ranks: tuple[int, ...] = ()


class PlantedRun(NamedTuple):
    """A run, and all that is wrong with it."""

    settings: Settings
    planted: tuple[PlantedFault, ...]


def planted_run(seed: int) -> PlantedRun:
    """Return a run of 3 or 10 ms a step with one or two things wrong, each of other size: on all ranks, on one, on
    those of a host, on some that are late together or in turns. Durations vary by 3 %. Of every second run, the
    loaders' workers were sampled."""
    draw = random.Random(seed)
    has_device = draw.random() < 0.8
    layout: Layout = draw.choice(("data", "data", "sharded")) if has_device else "data"
    num_ranks = draw.choice((1, 2, 4, 4, 8)) if layout == "data" else draw.choice((2, 4))
    step_ns = draw.choice((3_000_000, 3_000_000, 10_000_000))
    kinds = [*_HOST_FAULTS, *(_DEVICE_FAULTS if has_device else ()), *(("slow_network",) if num_ranks > 1 else ())]
    if num_ranks > 1:
        kinds += ["late"] * (len(kinds) // 2)
    chosen = list(dict.fromkeys(draw.choices(kinds, k=draw.choice((1, 2)))))
    if {"float32", "float64"} <= {*chosen}:
        chosen.remove("float32")
    faults: list[Fault] = []
    planted: list[PlantedFault] = []
    for kind in chosen:
        if kind == "late":
            more, finding, ranks = _late_ranks(draw, num_ranks, step_ns, has_device=has_device)
        else:
            every = draw.choice((1, 1, 2, 3)) if kind in ("gc", "recompilation") else 1
            more, finding, ranks = (
                [fault_of(draw, kind, step_ns, 2, (), every, draw.uniform(0.3, 1.2))],
                FINDINGS[kind],
                (),
            )
        planted.append(PlantedFault(tuple(range(len(faults), len(faults) + len(more))), finding, ranks))
        faults += more
    settings = Settings(
        seed=seed,
        num_ranks=num_ranks,
        ranks_per_host=max(1, num_ranks // 2),
        num_steps=draw.randint(12, 18),
        step_ns=step_ns,
        has_device=has_device,
        layout=layout,
        step_spans=draw.choice(("ProfilerStep", "event/batch", "both")),
        reads_loss=draw.choice(("never", "a step late", "a step late")),
        offset_ns=draw.choice((0, 5_000_000)),
        jitter_ns=draw.choice((0, 2_000)),
        has_memory="leak" in chosen,
        workers_do=draw.choice(("nothing", "compute")),
        faults=tuple(faults),
    )
    return PlantedRun(settings, tuple(planted))


def _late_ranks(
    draw: random.Random, num_ranks: int, step_ns: int, *, has_device: bool
) -> tuple[list[Fault], str, tuple[int, ...]]:
    """One late rank, those of a host, some others, or two that are late in turns."""
    kinds = [kind for kind in _STRAGGLER_FAULTS if has_device or kind != "late_device"]
    kind, size = draw.choice(kinds), draw.uniform(0.3, 1.2)
    shape = draw.choice(("one", "host", "some", "turns")) if num_ranks > 2 else "one"
    if shape == "turns":
        ranks = tuple(sorted(draw.sample(range(num_ranks), 2)))
        kind = "late_device" if has_device else "late_host"
        turns = [fault_of(draw, kind, step_ns, 2, (rank,), 2, size, first) for first, rank in enumerate(ranks)]
        return turns, "straggler", ranks
    if shape == "host":
        first = draw.choice((0, num_ranks // 2))
        ranks = tuple(range(first, first + num_ranks // 2))
    else:
        count = 1 if shape == "one" else draw.randint(2, num_ranks - 1)
        ranks = tuple(sorted(draw.sample(range(num_ranks), count)))
    every = draw.choice((1, 1, 2, 3))
    return [fault_of(draw, kind, step_ns, 2, (rank,), every, size) for rank in ranks], "straggler", ranks
