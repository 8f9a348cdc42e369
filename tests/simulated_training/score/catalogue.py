"""The catalogue of scenarios that `make score` draws."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from simulated_training.scenarios import fault_of
from simulated_training.score.scenario import Drawn, Plant, Scenario, plant_of
from simulated_training.settings import Fault, FaultKind, Layout, Settings

_Draw = Callable[[random.Random], Drawn]


def _settings(draw: random.Random, faults: Sequence[Fault] = (), **changes: Any) -> Settings:
    """Draw what may differ between runs of one scenario; ``changes`` are what the scenario is about."""
    drawn: dict[str, Any] = {
        "num_ranks": draw.choice((1, 2, 4)),
        "num_steps": draw.randint(10, 14),
        "step_ns": draw.choice((3_000_000, 6_000_000, 10_000_000)),
        "step_spans": draw.choice(("ProfilerStep", "event/batch", "both")),
        "reads_loss": draw.choice(("never", "a step late", "a step late")),
        "offset_ns": draw.choice((0, 5_000_000)),
        "jitter_ns": draw.choice((0, 2_000)),
        "has_memory": False,
        "workers_do": "compute",
    }
    drawn |= {"faults": tuple(faults), **changes}
    return Settings(**drawn)


def _size(draw: random.Random) -> float:
    return draw.uniform(0.3, 1.2)


def _fault_everywhere(
    kind: FaultKind,
    *,
    layouts: Sequence[Layout] = ("data", "data", "sharded"),
    every: Sequence[int] = (1,),
    **more: Any,
) -> _Draw:
    """Draw one fault that all ranks have."""

    def draw_run(draw: random.Random) -> Drawn:
        layout = draw.choice(layouts)
        step_ns = draw.choice((3_000_000, 6_000_000, 10_000_000))
        fault = fault_of(draw, kind, step_ns, 2, (), draw.choice(every), _size(draw))
        ranks = (1, 2, 4) if layout == "data" and kind != "slow_network" else (2, 4)
        changes = {"layout": layout, "num_ranks": draw.choice(ranks), "step_ns": step_ns} | more
        return Drawn(settings=_settings(draw, [fault], **changes), plants=(plant_of(0, fault),))

    return draw_run


def _on_cpu(kind: FaultKind, every: Sequence[int] = (1,)) -> _Draw:
    return _fault_everywhere(kind, layouts=("data",), every=every, has_device=False)


def _late(kind: FaultKind, *, has_device: bool = True, num_late: int = 1) -> _Draw:
    """Draw one fault that some ranks have, in the same steps."""

    def draw_run(draw: random.Random) -> Drawn:
        layout: Layout = draw.choice(("data", "data", "sharded")) if has_device else "data"
        step_ns = draw.choice((3_000_000, 10_000_000))
        num_ranks = draw.choice((2, 4)) if num_late == 1 else 4
        ranks = tuple(sorted(draw.sample(range(num_ranks), num_late)))
        every, size = draw.choice((1, 1, 2, 3)), _size(draw)
        faults = [fault_of(draw, kind, step_ns, 2, (rank,), every, size) for rank in ranks]
        plant = Plant(kinds=("straggler",), faults=tuple(range(num_late)), ranks=ranks, causes=(str(faults[0].cause),))
        changes: dict[str, Any] = {"layout": layout, "num_ranks": num_ranks, "step_ns": step_ns}
        return Drawn(settings=_settings(draw, faults, has_device=has_device, **changes), plants=(plant,))

    return draw_run


def _late_in_turns(draw: random.Random) -> Drawn:
    step_ns, ranks = draw.choice((3_000_000, 10_000_000)), tuple(sorted(draw.sample(range(4), 2)))
    kind: FaultKind = draw.choice(("late_host", "late_device"))
    size = _size(draw)
    faults = [fault_of(draw, kind, step_ns, 2, (rank,), 2, size, first) for first, rank in enumerate(ranks)]
    plant = Plant(kinds=("straggler",), faults=(0, 1), ranks=ranks, causes=(str(faults[0].cause),))
    return Drawn(settings=_settings(draw, faults, num_ranks=4, step_ns=step_ns), plants=(plant,))


def _healthy(draw: random.Random) -> Drawn:
    layout: Layout = draw.choice(("data", "data", "sharded"))
    num_ranks = draw.choice((1, 2, 4) if layout == "data" else (2, 4))
    return Drawn(settings=_settings(draw, layout=layout, num_ranks=num_ranks))


def _healthy_on_cpu(draw: random.Random) -> Drawn:
    return Drawn(settings=_settings(draw, has_device=False))


_KERNELS = "of all ranks, on GPUs (data parallel or sharded)"

SCENARIOS = (
    Scenario(name="healthy", planted="nothing, on GPUs", draw_run=_healthy),
    Scenario(name="healthy-cpu", planted="nothing, on CPUs", draw_run=_healthy_on_cpu),
    Scenario(name="loader", planted=f"slow loaders {_KERNELS}", draw_run=_fault_everywhere("slow_loader")),
    Scenario(name="loader-cpu", planted="slow loaders of all ranks, on CPUs", draw_run=_on_cpu("slow_loader")),
    Scenario(name="late-host", planted="one rank is late on its CPU", draw_run=_late("late_host")),
    Scenario(
        name="late-host-cpu", planted="one rank is late; no GPU, gloo", draw_run=_late("late_host", has_device=False)
    ),
    Scenario(name="late-device", planted="the GPU of one rank is slow", draw_run=_late("late_device")),
    Scenario(name="late-loader", planted="the loader of one rank is slow", draw_run=_late("slow_loader")),
    Scenario(
        name="late-together",
        planted="two of four ranks are late in the same steps",
        draw_run=_late("late_host", num_late=2),
    ),
    Scenario(name="late-in-turns", planted="two of four ranks are late in alternating steps", draw_run=_late_in_turns),
    Scenario(name="items", planted=f"calls of .item() in forward {_KERNELS}", draw_run=_fault_everywhere("items")),
    Scenario(
        name="pageable-copies", planted=f"blocking copies {_KERNELS}", draw_run=_fault_everywhere("pageable_copies")
    ),
    Scenario(name="small-kernels", planted=f"tiny kernels {_KERNELS}", draw_run=_fault_everywhere("small_kernels")),
    Scenario(
        name="slow-launches", planted=f"slow kernel launches {_KERNELS}", draw_run=_fault_everywhere("slow_launches")
    ),
    Scenario(name="slow-network", planted="slow collectives, on GPUs", draw_run=_fault_everywhere("slow_network")),
    Scenario(name="slow-network-cpu", planted="slow collectives; no GPU, gloo", draw_run=_on_cpu("slow_network")),
    Scenario(name="gc", planted=f"GC pauses {_KERNELS}", draw_run=_fault_everywhere("gc", every=(1, 2, 3))),
    Scenario(name="gc-cpu", planted="GC pauses of all ranks, on CPUs", draw_run=_on_cpu("gc", every=(1, 2, 3))),
    Scenario(name="leak", planted=f"memory that grows {_KERNELS}", draw_run=_fault_everywhere("leak", has_memory=True)),
    Scenario(
        name="slow-python",
        planted=f"slow Python between operators {_KERNELS}",
        draw_run=_fault_everywhere("slow_python"),
    ),
    Scenario(name="slow-python-cpu", planted="slow Python between operators, on CPUs", draw_run=_on_cpu("slow_python")),
    Scenario(
        name="recompilation",
        planted=f"recompilations {_KERNELS}",
        draw_run=_fault_everywhere("recompilation", every=(1, 2, 3)),
    ),
    Scenario(name="float32", planted=f"float32 matmuls {_KERNELS}", draw_run=_fault_everywhere("float32")),
    Scenario(name="float64", planted=f"float64 matmuls {_KERNELS}", draw_run=_fault_everywhere("float64")),
    Scenario(
        name="idle-gaps", planted=f"GPU idle gaps without a reason {_KERNELS}", draw_run=_fault_everywhere("idle_gaps")
    ),
    Scenario(
        name="profiler-cost", planted=f"the profiler's own work {_KERNELS}", draw_run=_fault_everywhere("profiler_cost")
    ),
    Scenario(
        name="blocked",
        planted=f"blocking system calls {_KERNELS}",
        draw_run=_fault_everywhere("blocked", has_states=True),
    ),
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
