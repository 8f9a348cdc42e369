"""The catalogue of scenarios that `make score` draws."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from trainsim.scenarios import fault_of
from trainsim.score.scenario import Drawn, Plant, Scenario, plant_of
from trainsim.settings import Fault, FaultKind, Layout, Settings

_Draw = Callable[[random.Random], Drawn]

_LOADER_STEPS = 32
"""The fetch before the first step changes a saving by up to a step's share of the recording."""


def _settings(draw: random.Random, faults: Sequence[Fault] = (), **changes: Any) -> Settings:
    """Draw what may differ between runs of one scenario; ``changes`` are what the scenario is about."""
    # A loop that reads each loss leaves the GPU without work in between, which matters in short steps.
    reads_loss = ("a step late", "never", *(("each step",) if changes.get("step_ns", 0) >= 10_000_000 else ()))
    drawn: dict[str, Any] = {
        "num_ranks": draw.choice((1, 2, 4)),
        "num_steps": draw.randint(14, 18),
        "step_ns": draw.choice((3_000_000, 6_000_000, 10_000_000)),
        "step_spans": draw.choice(("ProfilerStep", "event/batch", "both")),
        "reads_loss": draw.choice(reads_loss),
        "fetch_ns": draw.choice((15_000, 15_000, 120_000)),
        "kernel_gap_ns": draw.choice((0, 1_000)),
        "noise": draw.choice((0.005, 0.03, 0.06)),
        "offset_ns": draw.choice((0, 5_000_000)),
        "jitter_ns": draw.choice((0, 2_000)),
        "has_memory": False,
        "has_shapes": draw.random() < 0.5,
        "workers_do": draw.choice(("nothing", "compute")),
    }
    drawn |= {"faults": tuple(faults), **changes}
    return Settings(**(_recording(draw, drawn) | drawn))


def _recording(draw: random.Random, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Draw what is recorded, and what is not."""
    # A loop that reads each loss has nothing queued while it evaluates: its run would not be healthy.
    may_evaluate = settings["step_spans"] != "ProfilerStep" and settings["reads_loss"] != "each step"
    return {
        "num_cycles": draw.choice((1, 1, 1, 1, 2)) if settings["num_steps"] < _LOADER_STEPS else 1,
        "evaluates_every": draw.choice((0, 0, 0, 5)) if may_evaluate else 0,
        "has_sequence": draw.random() < 0.8,
        "has_kernel_args": draw.random() < 0.8,
        "has_stacks": draw.random() < 0.15,
        "has_sync_events": draw.random() < 0.3,
    }


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


def _in_settings(kinds: Sequence[FaultKind], choices: Callable[[random.Random], dict[str, Any]]) -> _Draw:
    """Draw one fault of these kinds, in runs with the settings that ``choices`` draws; slow ranks are of one rank."""

    def draw_run(draw: random.Random) -> Drawn:
        changes = {"num_ranks": draw.choice((2, 4)), "step_ns": draw.choice((3_000_000, 6_000_000, 10_000_000))}
        changes |= choices(draw)
        kind = draw.choice(kinds)
        ranks = (draw.randrange(changes["num_ranks"]),) if kind.startswith("late") else ()
        every = draw.choice((1, 1, 2)) if ranks or kind == "gc" else 1
        fault = fault_of(draw, kind, changes["step_ns"], changes.get("num_workers", 2), ranks, every, _size(draw))
        return Drawn(settings=_settings(draw, [fault], **changes), plants=(plant_of(0, fault),))

    return draw_run


def _logging(draw: random.Random) -> dict[str, Any]:
    """Draw a loop that reads its loss every few steps, with fetches that take their time."""
    every = draw.choice((2, 3, 5))
    fetch_ns = draw.choice((15_000, 60_000, 120_000))
    step_ns = draw.choice((3_000_000, 6_000_000, 20_000_000))
    return {"reads_loss": "each step", "reads_loss_every": every, "fetch_ns": fetch_ns, "step_ns": step_ns}


def _accumulation(draw: random.Random) -> dict[str, Any]:
    """Draw a loop that adds up gradients of several batches, within a step or over steps."""
    changes: dict[str, Any] = {"fetch_ns": draw.choice((15_000, 60_000, 120_000)), "num_layers": 2}
    changes |= {
        "step_ns": draw.choice((6_000_000, 20_000_000)),
        "reads_loss": draw.choice(("each step", "a step late")),
    }
    number = draw.choice((2, 4))
    if draw.random() < 0.5:
        return changes | {"num_accumulated": number, "step_spans": "ProfilerStep"}
    return changes | {"optimizes_every": number, "num_warmup_steps": 4, "num_steps": 6 * number}


def _short_steps(draw: random.Random) -> dict[str, Any]:
    return {"step_ns": draw.choice((500_000, 800_000)), "num_steps": 30, "fetch_ns": draw.choice((15_000, 40_000))}


def _long_steps(draw: random.Random) -> dict[str, Any]:
    return {"step_ns": draw.choice((100_000_000, 400_000_000)), "num_steps": 8, "num_layers": draw.choice((4, 8))}


def _recomputation(draw: random.Random) -> dict[str, Any]:
    return {"has_recomputation": True, "layout": draw.choice(("data", "sharded", "fsdp"))}


def _cuda_graphs(draw: random.Random) -> dict[str, Any]:
    return {"has_cuda_graph": True, "has_eager_head": draw.random() < 0.5}


def _side_copies(draw: random.Random) -> dict[str, Any]:
    return {"has_prefetched_copies": True, "num_ranks": draw.choice((1, 2, 4))}


def _fsdp(draw: random.Random) -> dict[str, Any]:
    return {"layout": "fsdp", "num_layers": draw.choice((3, 6))}


def _pools_on_all(draw: random.Random) -> Drawn:
    """Draw pools of workers that make fewer batches than the loop takes."""
    num_workers, step_ns = draw.choice((2, 4, 8)), draw.choice((3_000_000, 10_000_000))
    cost_ns = int(num_workers * step_ns * draw.uniform(0.7, 1.5))
    fault = Fault(kind="slow_loader", cost_ns=cost_ns)
    settings = _settings(
        draw,
        [fault],
        step_ns=step_ns,
        num_workers=num_workers,
        fetch_ns=120_000,
        num_warmup_steps=6,
        num_steps=_LOADER_STEPS,
    )
    return Drawn(settings=settings, plants=(plant_of(0, fault),))


def _uneven_pools(draw: random.Random) -> Drawn:
    """Draw pools that are too slow on all ranks, with batches of unequal times: ranks wait for data in turns."""
    num_workers, step_ns = draw.choice((2, 4)), draw.choice((3_000_000, 10_000_000))
    cost_ns = int(num_workers * step_ns * draw.uniform(0.7, 1.2))
    fault = Fault(kind="slow_loader", cost_ns=cost_ns)
    changes: dict[str, Any] = {"num_ranks": draw.choice((2, 4)), "step_ns": step_ns, "num_workers": num_workers}
    changes |= {"loader_noise": draw.uniform(0.3, 0.7), "num_warmup_steps": 6, "num_steps": _LOADER_STEPS}
    return Drawn(settings=_settings(draw, [fault], **changes), plants=(plant_of(0, fault),))


def _pool_on_one(draw: random.Random) -> Drawn:
    num_workers, step_ns, num_ranks = draw.choice((2, 4, 8)), draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    cost_ns = int(num_workers * step_ns * draw.uniform(0.7, 1.5))
    fault = Fault(kind="slow_loader", cost_ns=cost_ns, ranks=(draw.randrange(num_ranks),))
    changes: dict[str, Any] = {"num_ranks": num_ranks, "step_ns": step_ns, "num_workers": num_workers}
    settings = _settings(draw, [fault], fetch_ns=120_000, num_warmup_steps=6, num_steps=_LOADER_STEPS, **changes)
    return Drawn(settings=settings, plants=(plant_of(0, fault),))


def _slow_pools(draw: random.Random) -> Drawn:
    """Draw healthy runs whose workers take several steps for a batch, but keep up."""
    num_workers, step_ns = draw.choice((4, 8)), draw.choice((3_000_000, 10_000_000))
    fault = Fault(kind="slow_loader", cost_ns=int(num_workers * step_ns * draw.uniform(0.1, 0.25)))
    changes: dict[str, Any] = {"num_workers": num_workers, "step_ns": step_ns, "num_warmup_steps": 8}
    return Drawn(settings=_settings(draw, [fault], fetch_ns=draw.choice((15_000, 60_000)), **changes))


def _two_faults(draw: random.Random) -> Drawn:
    """Draw two faults of different kinds; at most one makes a rank late."""
    step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    everywhere: list[FaultKind] = [
        "slow_loader", "items", "pageable_copies", "slow_launches", "slow_network", "gc", "slow_python", "recompilation"
    ]  # fmt: skip
    kinds = draw.sample(everywhere, 2)
    faults = [fault_of(draw, kind, step_ns, 2, (), 1, _size(draw)) for kind in kinds]
    if draw.random() < 0.4:
        kind: FaultKind = draw.choice(("late_host", "late_device"))
        faults[1] = fault_of(draw, kind, step_ns, 2, (draw.randrange(num_ranks),), 1, _size(draw))
    # Without samples of workers, no trace shows how slow a loader is that nothing waits for.
    settings = _settings(draw, faults, num_ranks=num_ranks, step_ns=step_ns, workers_do="compute")
    return Drawn(settings=settings, plants=tuple(plant_of(index, fault) for index, fault in enumerate(faults)))


def _pause(at: Literal["start", "end"], *, on_one: bool) -> _Draw:
    """Draw a pause of the loop in every n-th step, such as saving or logging, on all ranks or on one."""

    def draw_run(draw: random.Random) -> Drawn:
        step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4) if on_one else (1, 2, 4))
        ranks, every = (draw.randrange(num_ranks),) if on_one else (), draw.choice((1, 2, 4))
        cost_ns = int(step_ns * every * draw.uniform(0.8, 2))
        fault = Fault(kind="late_host", cost_ns=cost_ns, ranks=ranks, every=every, at=at)
        plant = plant_of(0, fault) if on_one else Plant(kinds=("python_overhead",), faults=(0,))
        changes: dict[str, Any] = {"num_ranks": num_ranks, "step_ns": step_ns, "num_steps": 12}
        return Drawn(settings=_settings(draw, [fault], **changes), plants=(plant,))

    return draw_run


def _gc_in_turns(draw: random.Random) -> Drawn:
    step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    cost_ns = int(step_ns * draw.uniform(1, 3))
    faults = [
        Fault(kind="gc", cost_ns=cost_ns, ranks=(rank,), every=num_ranks, first=rank) for rank in range(num_ranks)
    ]
    plant = Plant(kinds=("garbage_collection",), faults=tuple(range(num_ranks)))
    settings = _settings(draw, faults, num_ranks=num_ranks, step_ns=step_ns, num_steps=12)
    return Drawn(settings=settings, plants=(plant,))


def _checkpoint(*, on_one: bool) -> _Draw:
    """Draw a write to storage at the end of every n-th step."""

    def draw_run(draw: random.Random) -> Drawn:
        step_ns, num_ranks, every = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4)), draw.choice((3, 4))
        cost_ns = int(step_ns * every * draw.uniform(0.5, 1.5))
        ranks = (0,) if on_one else ()
        fault = Fault(kind="blocked", cost_ns=cost_ns, ranks=ranks, every=every, at="end")
        settings = _settings(draw, [fault], num_ranks=num_ranks, step_ns=step_ns, num_steps=12, has_states=True)
        return Drawn(settings=settings, plants=(Plant(kinds=("blocked",), faults=(0,)),))

    return draw_run


def _clocks(draw: random.Random) -> dict[str, Any]:
    return {"offset_ns": draw.choice((5_000_000, 500_000_000)), "drift_ppm": draw.choice((0.0, 10.0, 50.0))}


def _truncated(draw: random.Random) -> Drawn:
    step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    late, cut = draw.randrange(num_ranks), draw.randrange(num_ranks)
    fault = fault_of(draw, draw.choice(("late_host", "late_device")), step_ns, 2, (late,), 1, _size(draw))
    plant = replace(plant_of(0, fault), max_confidence="medium")
    truncated = ((cut, draw.uniform(0.75, 0.95)),)
    changes: dict[str, Any] = {"num_ranks": num_ranks, "step_ns": step_ns, "num_steps": 14}
    return Drawn(settings=_settings(draw, [fault], num_cycles=1, truncated=truncated, **changes), plants=(plant,))


def _truncated_healthy(draw: random.Random) -> Drawn:
    num_ranks = draw.choice((1, 2, 4))
    truncated = ((draw.randrange(num_ranks), draw.uniform(0.75, 0.95)),)
    return Drawn(settings=_settings(draw, num_cycles=1, num_ranks=num_ranks, truncated=truncated, num_steps=14))


def _missing_rank(draw: random.Random) -> Drawn:
    """Draw a late rank whose trace is missing: the others wait, for a reason that no trace shows."""
    step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    late = draw.randrange(1, num_ranks)
    fault = fault_of(draw, draw.choice(("late_host", "late_device")), step_ns, 2, (late,), 1, _size(draw))
    plant = Plant(kinds=("exposed_communication",), faults=(0,), max_confidence="medium", has_replay=False)
    changes: dict[str, Any] = {"num_ranks": num_ranks, "step_ns": step_ns, "missing_ranks": (late,)}
    return Drawn(settings=_settings(draw, [fault], **changes), plants=(plant,))


def _throttled(draw: random.Random) -> Drawn:
    """Draw a GPU that gets slower during the recording."""
    step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    fault = fault_of(draw, "late_device", step_ns, 2, (draw.randrange(num_ranks),), 1, draw.uniform(0.5, 1.5))
    fault = replace(fault, since=draw.randint(5, 8))
    settings = _settings(draw, [fault], num_cycles=1, num_ranks=num_ranks, step_ns=step_ns, num_steps=14)
    return Drawn(settings=settings, plants=(plant_of(0, fault),))


def _hiccup_once(draw: random.Random) -> Drawn:
    """Draw one transfer that is longer, in one step of the recording."""
    num_steps = draw.randint(9, 12)
    step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    cost_ns = int(step_ns * num_steps * draw.uniform(0.08, 0.3))
    fault = Fault(kind="network_hiccup", cost_ns=cost_ns, every=1_000, first=draw.randint(5, 9))
    plant = replace(plant_of(0, fault), max_confidence="medium")
    settings = _settings(draw, [fault], num_cycles=1, num_ranks=num_ranks, step_ns=step_ns, num_steps=num_steps)
    return Drawn(settings=settings, plants=(plant,))


def _hiccups(draw: random.Random) -> Drawn:
    step_ns, num_ranks, every = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4)), draw.choice((2, 3))
    fault = Fault(kind="network_hiccup", cost_ns=int(step_ns * every * draw.uniform(0.3, 0.8)), every=every)
    settings = _settings(draw, [fault], num_ranks=num_ranks, step_ns=step_ns, num_steps=12)
    return Drawn(settings=settings, plants=(plant_of(0, fault),))


def _slow_side_copies(draw: random.Random) -> Drawn:
    """Draw batches that a side stream copies for longer than the GPU computes."""
    step_ns = draw.choice((3_000_000, 10_000_000))
    fault = fault_of(draw, "slow_copies", step_ns, 2, (), 1, draw.uniform(0.9, 1.5))
    return Drawn(settings=_settings(draw, [fault], step_ns=step_ns, **_side_copies(draw)), plants=(plant_of(0, fault),))


def _cpu_optimizer(draw: random.Random) -> Drawn:
    step_ns = draw.choice((3_000_000, 10_000_000, 20_000_000))
    fault = fault_of(draw, "cpu_optimizer", step_ns, 2, (), 1, draw.uniform(0.4, 1.2))
    plant = Plant(kinds=("host_bound",), faults=(0,), mentions="aten::_fused_adamw_")
    return Drawn(settings=_settings(draw, [fault], step_ns=step_ns, num_ranks=draw.choice((1, 2))), plants=(plant,))


def _unequal_batches(draw: random.Random) -> Drawn:
    step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    fault = fault_of(draw, "unequal_batches", step_ns, 2, (), 1, _size(draw))
    plant = Plant(kinds=("straggler",), faults=(0,), ranks=tuple(range(num_ranks)), causes=("device",))
    settings = _settings(draw, [fault], num_ranks=num_ranks, step_ns=step_ns)
    return Drawn(settings=settings, plants=(plant,))


def _unbalanced_experts(draw: random.Random) -> Drawn:
    step_ns, num_ranks = draw.choice((3_000_000, 10_000_000)), draw.choice((2, 4))
    fault = fault_of(draw, "unbalanced_experts", step_ns, 2, (), 1, _size(draw))
    plant = Plant(kinds=("straggler",), faults=(0,), ranks=tuple(range(num_ranks)), causes=("device",))
    changes: dict[str, Any] = {"layout": "experts", "expert_share": 0.5, "num_ranks": num_ranks, "step_ns": step_ns}
    changes |= {"transfer_share": 0.002, "num_layers": 3}
    return Drawn(settings=_settings(draw, [fault], **changes), plants=(plant,))


def _late_in_groups(draw: random.Random) -> Drawn:
    """Draw one late rank of tensor parallel pairs that are data parallel to each other."""
    num_ranks = draw.choice((4, 4, 8))
    step_ns = draw.choice((3_000_000, 10_000_000))
    kind: FaultKind = draw.choice(("late_host", "late_device"))
    fault = fault_of(draw, kind, step_ns, 2, (draw.randrange(num_ranks),), draw.choice((1, 2)), _size(draw))
    settings = _settings(draw, [fault], layout="tensor", num_ranks=num_ranks, step_ns=step_ns, transfer_share=0.003)
    return Drawn(settings=settings, plants=(plant_of(0, fault),))


def _pipeline(draw: random.Random) -> dict[str, Any]:
    parts = draw.choice((4, 8))
    changes: dict[str, Any] = {
        "layout": "pipeline",
        "pipeline": "1F1B",
        "num_microbatches": parts,
        "num_layers": 2,
        "num_steps": 8,
    }
    return changes | {"transfer_share": 0.001}


def _slow_stage(draw: random.Random) -> Drawn:
    changes: dict[str, Any] = _pipeline(draw) | {"num_ranks": 4, "step_ns": draw.choice((10_000_000, 30_000_000))}
    fault = fault_of(draw, "late_device", changes["step_ns"], 2, (draw.randrange(4),), 1, draw.uniform(0.5, 1.2))
    fault = replace(fault, cost_ns=fault.cost_ns // changes["num_microbatches"])
    return Drawn(settings=_settings(draw, [fault], **changes), plants=(plant_of(0, fault),))


def _healthy_pipeline(draw: random.Random) -> Drawn:
    changes: dict[str, Any] = _pipeline(draw) | {"num_ranks": 4, "step_ns": draw.choice((10_000_000, 30_000_000))}
    return Drawn(settings=_settings(draw, **changes))


def _contention(by: Literal["this job", "other programs"]) -> _Draw:
    """Draw loops that often wait for a CPU; where other programs take the CPUs, that is no finding."""

    def draw_run(draw: random.Random) -> Drawn:
        step_ns, has_device = draw.choice((20_000_000, 40_000_000)), draw.random() < 0.5
        # A loop of a GPU that runs ahead hides short pauses.
        fault = fault_of(draw, "preempted", step_ns, 2, (), 1, draw.uniform(0.2, 0.5) * (3 if has_device else 1))
        changes: dict[str, Any] = {"num_ranks": draw.choice((1, 2)), "step_ns": step_ns, "num_layers": 3}
        settings = _settings(draw, [fault], has_device=has_device, has_states=True, contention_by=by, **changes)
        return Drawn(settings=settings, plants=(plant_of(0, fault),) if by == "this job" else ())

    return draw_run


MATMUL_KERNELS = (
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_BatchedGemm_32x32_64x1_tn_align8>(Params)",
    "void cutlass::device_kernel<GroupedGemmKernel<cutlass::bfloat16_t, cutlass::layout::RowMajor> >(Params)",
    "StridedBatchedGemm_bf16_h16816_splitK",
)
"""Names of bfloat16 matmuls; some hold the letters of float64's, such as "BatchedGemm"."""


def _matmul_names(draw: random.Random) -> Drawn:
    return Drawn(settings=_settings(draw, matmul_kernel=draw.choice(MATMUL_KERNELS)))


_ANY: tuple[FaultKind, ...] = ("slow_loader", "late_host", "late_device", "gc", "slow_network")
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
    Scenario(
        name="logging",
        planted="one of several faults in loops that call .item() every n-th step",
        draw_run=_in_settings(("slow_network", "late_host", "late_device", "gc", "slow_launches"), _logging),
    ),
    Scenario(
        name="accumulation",
        planted="one of several faults in loops that add up gradients of 2 or 4 batches",
        draw_run=_in_settings(("late_host", "late_device", "slow_network", "slow_launches"), _accumulation),
    ),
    Scenario(
        name="short-steps",
        planted="one of several faults in steps of 0.5 to 0.8 ms",
        draw_run=_in_settings(("slow_loader", "late_host", "late_device", "slow_network", "items"), _short_steps),
    ),
    Scenario(
        name="long-steps",
        planted="one of several faults in steps of 100 to 400 ms",
        draw_run=_in_settings(("slow_loader", "late_host", "late_device", "slow_network", "gc"), _long_steps),
    ),
    Scenario(name="pools-saturated", planted="loader pools of all ranks that are too slow", draw_run=_pools_on_all),
    Scenario(name="pool-saturated-on-one", planted="the loader pool of one rank is too slow", draw_run=_pool_on_one),
    Scenario(
        name="pools-uneven",
        planted="loader pools of all ranks that are too slow, with batches of unequal times",
        draw_run=_uneven_pools,
    ),
    Scenario(name="pools-slow", planted="nothing: loader pools are slow, but keep up", draw_run=_slow_pools),
    Scenario(
        name="contention",
        planted="the job's own threads take the CPUs from each other",
        draw_run=_contention("this job"),
    ),
    Scenario(
        name="contention-by-others",
        planted="nothing in the job: other programs take the CPUs",
        draw_run=_contention("other programs"),
    ),
    Scenario(name="two-faults", planted="two faults of different kinds at once", draw_run=_two_faults),
    Scenario(
        name="pause-at-start",
        planted="Python on all ranks, at the start of every n-th step",
        draw_run=_pause("start", on_one=False),
    ),
    Scenario(
        name="pause-at-end",
        planted="Python on all ranks, at the end of every n-th step",
        draw_run=_pause("end", on_one=False),
    ),
    Scenario(
        name="pause-at-start-of-one",
        planted="Python on one rank, at the start of every n-th step",
        draw_run=_pause("start", on_one=True),
    ),
    Scenario(
        name="pause-at-end-of-one",
        planted="Python on one rank, at the end of every n-th step",
        draw_run=_pause("end", on_one=True),
    ),
    Scenario(name="gc-in-turns", planted="GC pauses on ranks in turn", draw_run=_gc_in_turns),
    Scenario(name="checkpoints", planted="all ranks write checkpoints", draw_run=_checkpoint(on_one=False)),
    Scenario(
        name="checkpoints-of-one",
        planted="rank 0 writes checkpoints",
        draw_run=_checkpoint(on_one=True),
    ),
    Scenario(
        name="clocks",
        planted="a late rank, and clocks that differ and drift",
        draw_run=_in_settings(("late_host", "late_device"), _clocks),
    ),
    Scenario(name="truncated", planted="a late rank, and one truncated file", draw_run=_truncated),
    Scenario(
        name="truncated-healthy",
        planted="nothing; one file is truncated",
        draw_run=_truncated_healthy,
    ),
    Scenario(name="missing-rank", planted="a late rank whose trace is missing", draw_run=_missing_rank),
    Scenario(name="throttled", planted="the GPU of one rank gets slower during the recording", draw_run=_throttled),
    Scenario(name="hiccup-once", planted="one long transfer in the recording", draw_run=_hiccup_once),
    Scenario(name="hiccups", planted="a long transfer in every second or third step", draw_run=_hiccups),
    Scenario(
        name="fsdp",
        planted="one of several faults in sharded training whose backward waits for weights, too",
        draw_run=_in_settings(_ANY, _fsdp),
    ),
    Scenario(
        name="recomputation",
        planted="one of several faults, with activation checkpointing",
        draw_run=_in_settings(_ANY, _recomputation),
    ),
    Scenario(
        name="cuda-graphs", planted="one of several faults, with CUDA graphs", draw_run=_in_settings(_ANY, _cuda_graphs)
    ),
    Scenario(
        name="side-copies",
        planted="one of several faults; a side stream copies batches ahead",
        draw_run=_in_settings(("slow_loader", "gc", "slow_launches"), _side_copies),
    ),
    Scenario(
        name="slow-side-copies",
        planted="a side stream copies batches for longer than a step",
        draw_run=_slow_side_copies,
    ),
    Scenario(name="matmul-names", planted="nothing; matmuls have misleading names", draw_run=_matmul_names),
    Scenario(name="cpu-optimizer", planted="the optimizer runs on the CPU", draw_run=_cpu_optimizer),
    Scenario(name="unequal-batches", planted="batches of unequal lengths", draw_run=_unequal_batches),
    Scenario(
        name="unbalanced-experts",
        planted="experts with unequal loads, in turns",
        draw_run=_unbalanced_experts,
    ),
    Scenario(
        name="late-in-groups",
        planted="one late rank of tensor x data parallel groups",
        draw_run=_late_in_groups,
    ),
    Scenario(
        name="slow-stage",
        planted="one slow stage of a 1F1B pipeline",
        draw_run=_slow_stage,
        healthy_kinds=("pipeline_bubble",),
    ),
    Scenario(
        name="healthy-pipeline",
        planted="nothing; a balanced 1F1B pipeline",
        draw_run=_healthy_pipeline,
        healthy_kinds=("pipeline_bubble",),
    ),
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
