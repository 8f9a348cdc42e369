"""Settings drawn by chance from a seed: healthy runs, runs with a planted fault, and any run at all."""

import random

from trainsim.settings import Fault, FaultKind, Layout, Settings, StepSpans


def healthy_settings(seed: int, step_ns: int) -> Settings:
    """Return a run with nothing wrong: with or without a device, one rank or several."""
    draw = random.Random(seed)
    has_device = draw.random() < 0.7
    layout: Layout = draw.choice(("data", "data", "sharded")) if has_device else "data"
    return Settings(
        seed=seed,
        step_ns=step_ns,
        num_ranks=draw.choice((1, 2, 4)) if layout == "data" else draw.choice((2, 4)),
        num_steps=draw.randint(8, 14),
        has_device=has_device,
        layout=layout,
        step_spans=draw.choice(("ProfilerStep", "event/batch", "both")),
        num_workers=draw.choice((1, 2, 4)),
        reads_loss=draw.choice(("a step late", "each step")) if step_ns > 10_000_000 else "a step late",
        offset_ns=draw.choice((0, 5_000_000)),
        jitter_ns=draw.choice((0, 2_000)),
    )


def random_settings(seed: int) -> Settings:
    """Any run: healthy or with a fault or two, of any shape, with whatever can be missing from traces."""
    draw = random.Random(seed)
    has_device = draw.random() < 0.8
    layout: Layout = draw.choice(("data", "data", "sharded", "tensor", "experts", "pipeline")) if has_device else "data"
    num_ranks = draw.choice((1, 2, 3, 4)) if layout == "data" else draw.choice((2, 4))
    step_ns = draw.choice((300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000))
    step_spans: StepSpans = draw.choice(("ProfilerStep", "event/batch", "both"))
    others = tuple(range(1, num_ranks))
    return Settings(
        seed=seed,
        num_ranks=num_ranks,
        num_steps=draw.randint(2, 14),
        num_cycles=draw.choice((1, 1, 1, 2)),
        num_warmup_steps=draw.randint(1, 4),
        step_ns=step_ns,
        has_device=has_device,
        layout=layout,
        step_spans=step_spans,
        num_workers=draw.choice((0, 1, 2, 4)),
        evaluates_every=draw.choice((0, 0, 3)) if step_spans != "ProfilerStep" else 0,
        reads_loss=draw.choice(("never", "each step", "a step late")),
        has_cuda_graph=has_device and layout == "data" and draw.random() < 0.15,
        offset_ns=draw.choice((0, 5_000_000)),
        missing_ranks=(draw.choice(others),) if others and draw.random() < 0.1 else (),
        late_ranks=(draw.choice(others),) if others and has_device and draw.random() < 0.1 else (),
        num_missed_calls=draw.randint(1, 2),
        has_sequence=draw.random() < 0.7,
        has_kernel_args=draw.random() < 0.7,
        has_shapes=draw.random() < 0.7,
        has_memory=draw.random() < 0.5,
        has_stacks=draw.random() < 0.2,
        has_sync_events=draw.random() < 0.3,
        faults=_random_faults(draw, num_ranks, step_ns, has_device),
    )


def planted_settings(seed: int, *kinds: FaultKind, rank: int | None = None) -> Settings:
    """Return a run of three milliseconds a step with faults that matter.

    With a ``rank``, what makes a rank late is only this one's, of four. Without, a slow loader is every rank's, and any
    rank may be the late one.
    """
    draw = random.Random(seed)
    step_ns, num_workers = 3_000_000, 2
    has_late_rank = rank is not None or any(kind in ("late_host", "late_device") for kind in kinds)
    num_ranks = 4 if has_late_rank else draw.choice((2, 4))
    late = draw.randrange(num_ranks) if rank is None else rank
    faults = []
    for kind in kinds:
        is_late = kind in ("late_host", "late_device") or (kind == "slow_loader" and rank is not None)
        every = draw.choice((1, 2, 3)) if is_late or kind in ("gc", "recompilation") else 1
        faults.append(fault_of(draw, kind, step_ns, num_workers, (late,) if is_late else (), every))
    return Settings(
        seed=seed,
        num_ranks=num_ranks,
        num_steps=12,
        num_workers=num_workers,
        step_ns=step_ns,
        step_spans=draw.choice(("ProfilerStep", "event/batch", "both")),
        offset_ns=5_000_000,
        has_memory="leak" in kinds,
        has_states="blocked" in kinds or "preempted" in kinds,
        faults=tuple(faults),
    )


def _random_faults(draw: random.Random, num_ranks: int, step_ns: int, has_device: bool) -> tuple[Fault, ...]:
    """None, one or two faults, each of another kind."""
    kinds: list[FaultKind] = ["slow_loader", "gc", "leak", "slow_python", "recompilation", "float64", "profiler_cost"]
    on_device: list[FaultKind] = ["items", "pageable_copies", "small_kernels", "slow_launches", "float32", "idle_gaps"]
    between_ranks: list[FaultKind] = ["slow_network", "late_host"]
    if has_device:
        kinds += on_device
        between_ranks.append("late_device")
    if num_ranks > 1:
        kinds += between_ranks
    faults = []
    for kind in draw.sample(kinds, draw.choice((0, 1, 1, 2))):
        is_late = kind.startswith("late") or (kind == "slow_loader" and num_ranks > 1 and draw.random() < 0.5)
        ranks = (draw.randrange(num_ranks),) if is_late else ()
        faults.append(fault_of(draw, kind, step_ns, 4, ranks, draw.choice((1, 1, 2, 3))))
    return tuple(faults)


def fault_of(
    draw: random.Random,
    kind: FaultKind,
    step_ns: int,
    num_workers: int,
    ranks: tuple[int, ...],
    every: int,
    size: float | None = None,
    first: int = 0,
) -> Fault:
    """Return a fault that costs about half a step or more where it strikes, or ``size`` times as much."""
    costs: dict[FaultKind, float] = {
        "slow_loader": (1 + 2 * (every - 1)) * num_workers,
        "late_host": 1.8,
        "late_device": 0.7,
        "pageable_copies": 0.6,
        "slow_launches": 0.06,
        "slow_network": 0.25,
        "gc": 2.5,
        "slow_python": 0.08,
        "recompilation": 3.0,
        "float32": 0.06,
        "float64": 0.08,
        "idle_gaps": 0.05,
        "profiler_cost": 1.5,
        "blocked": 1.5,
        "preempted": 1.5,
        "network_hiccup": 0.8,
        "slow_copies": 1.2,
        "unequal_batches": 0.9,
        "unbalanced_experts": 0.9,
        "cpu_optimizer": 0.8,
    }
    counts = {"items": max(8, step_ns // 60_000), "small_kernels": min(500, step_ns // 6_000)}
    if kind not in costs and kind not in counts and kind != "leak":
        raise ValueError(f"{kind} has no size: add it to the costs or counts of {__name__}.fault_of.")
    if size is None:
        size = draw.uniform(0.8, 1.2)
    else:
        counts = {name: max(1, int(size * count)) for name, count in counts.items()}
    return Fault(
        kind=kind,
        cost_ns=int(size * costs.get(kind, 0) * step_ns),
        ranks=ranks,
        every=every,
        first=first,
        count=counts.get(kind, 1),
        num_bytes=int(size * 40_000_000) if kind == "leak" else 0,
    )
