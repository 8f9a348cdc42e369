"""A simulated run: what every rank recorded, and what the same run would have been without a fault."""

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from trainsim import kineto
from trainsim.engine import Engine, Host, HostSpan, Loader, QueuedSpan, Window
from trainsim.groups import Group, build_groups
from trainsim.program import build_program
from trainsim.settings import Ideal, Settings
from trainsim.truth import Truth


@dataclass(frozen=True, eq=False)
class RankRun:
    """Recording of one rank in true time, and the offset and drift of its clock from rank 0's."""

    rank: int
    windows: tuple[Window, ...]
    offset_ns: int
    drift_ppm: float
    ranks_per_host: int = 8

    @property
    def host(self) -> str:
        return f"node{self.rank // self.ranks_per_host}"

    @property
    def device(self) -> int:
        return self.rank % self.ranks_per_host

    def clock_ns(self, at_ns: int) -> int:
        """Unix time by this rank's clock."""
        return kineto.START_NS + at_ns + self.offset_ns + round(at_ns * self.drift_ppm / 1e6)


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """A run whose every moment is known."""

    settings: Settings
    groups: tuple[Group, ...]
    ranks: tuple[RankRun, ...]
    """Those whose trace is there."""

    def write(self, folder: Path) -> list[Path]:
        """Write a trace per rank and cycle as Kineto does, and return their names."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for rank in self.ranks:
            for index, window in enumerate(rank.windows):
                cycle = f"-cycle{index}" if len(rank.windows) > 1 else ""
                paths.append(folder / f"rank{rank.rank}{cycle}.json")
                text = kineto.render(self.settings, self.groups, rank, window)
                text = text[: round(len(text) * dict(self.settings.truncated).get(rank.rank, 1.0))]
                paths[-1].write_text(text, encoding="utf-8")
        return paths

    @cached_property
    def truth(self) -> Truth:
        """Return the results that an analysis of the traces should have."""
        return Truth(replace(self))  # a copy: no cycle of references

    def without(self, *places: int) -> "SimulatedRun":
        """Return the same run with some of its faults gone in recorded steps; without places, with all gone."""
        return simulate(replace(self.settings, removed=places or tuple(range(len(self.settings.faults)))))

    def with_ideal(self, *what: Ideal) -> "SimulatedRun":
        """Return the same run, where some things take no time in recorded steps."""
        return simulate(replace(self.settings, ideal=what))

    def with_faster(self, name: str, times: float) -> "SimulatedRun":
        """Return the same run with an operator or kernel ``times`` as fast in recorded steps."""
        return simulate(replace(self.settings, faster=((name, times),)))

    @property
    def time_ns(self) -> int:
        """From the first begin of recording to the last end on a device, or of a step where there is none; the sum of
        all cycles."""
        return sum(map(self._cycle_ns, zip(*(rank.windows for rank in self.ranks), strict=True)))

    def _cycle_ns(self, windows: tuple[Window, ...]) -> int:
        begin_ns = min(window.begin_ns for window in windows)
        ends_ns = [span.end_ns for window in windows for span in window.queued if span.kernel.kind != "gloo"]
        if not self.settings.has_device:
            ends_ns = [step.end_ns for window in windows for step in window.steps]
        return max(end_ns for end_ns in ends_ns if end_ns is not None) - begin_ns

    @property
    def num_steps(self) -> int:
        """Return the number of steps of all cycles."""
        return self.settings.num_steps * self.settings.num_cycles

    @property
    def pace_ns(self) -> float:
        """From what a step computes last to what the next one does, in the second half of the recording, where a
        device is in step with its host; without a device, from begin to begin. The mean of all ranks."""
        return fmean(_pace_ns(rank.windows[-1], has_device=self.settings.has_device) for rank in self.ranks)

    def saving_ns_per_step(self, better: "SimulatedRun") -> float:
        """Return how much shorter a step of another run is."""
        return (self.time_ns - better.time_ns) / self.num_steps


def _pace_ns(window: Window, *, has_device: bool) -> float:
    ends_ns: dict[int, int] = {}
    for span in window.queued:
        if span.kernel.kind == "compute" and span.step is not None and span.end_ns is not None:
            ends_ns[span.step] = max(span.end_ns, ends_ns.get(span.step, 0))
    moments = sorted(ends_ns.values()) if has_device else [step.begin_ns for step in window.steps]
    half = moments[len(moments) // 2 :]
    return (half[-1] - half[0]) / (len(half) - 1)


def simulate(settings: Settings) -> SimulatedRun:
    """Simulate a training run of these settings from its first step to its last."""
    groups, engine = build_groups(settings), Engine()
    with _without_collections():
        hosts = [
            Host(engine, rank, build_program(settings, rank, groups), _loader(settings, rank), settings.max_launches)
            for rank in range(settings.num_ranks)
        ]
        engine.run(hosts)
    draw = random.Random(settings.seed)
    clocks = [(0, 0.0)] + [
        (draw.randint(-settings.offset_ns, settings.offset_ns), draw.uniform(-1, 1) * settings.drift_ppm)
        for _ in hosts[1:]
    ]
    ranks = [
        RankRun(host.rank, tuple(recorded_windows(host)), *clock, settings.ranks_per_host)
        for host, clock in zip(hosts, clocks, strict=True)
        if host.rank not in settings.missing_ranks
    ]
    return SimulatedRun(settings, tuple(groups), tuple(ranks))


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection looks through a run, meanwhile or later: its objects have no cycles of references.

    That would take a third of the time of a simulation, and as much again afterwards.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
            gc.freeze()


def _loader(settings: Settings, rank: int) -> Loader:
    draw = random.Random(settings.seed * 100_003 + rank)
    # Of its own, so that the usual times are the same with and without noise.
    noise = random.Random(settings.seed * 100_003 - rank)
    usual_ns = settings.step_ns * settings.num_workers // 2 if settings.num_workers else settings.step_ns // 50
    make_ns = []
    parts = settings.num_accumulated
    for step in (step for step in range(settings.total_steps) for _ in range(parts)):
        slow = [fault.cost_ns for fault in settings.faults_at(rank, step) if fault.kind == "slow_loader"]
        make_ns.append(
            (
                int(usual_ns * draw.uniform(0.9, 1.1))
                + int(sum(slow) * (1 + settings.loader_noise * noise.uniform(-1, 1)))
            )
            // parts
        )
    return Loader(
        num_workers=settings.num_workers,
        num_ahead=settings.num_ahead,
        make_ns=make_ns,
        pin_ns=settings.step_ns // 100,
    )


def recorded_windows(host: Host) -> list[Window]:
    """Return the windows with what they hold of the device's work: what was launched in them, or began in them."""
    for span in host.queued:
        window = _window_of(host, span)
        if window is not None:
            window.queued.append(span)
    making = host.loader.making()
    for window in host.windows:
        window.making = [one for one in making if one.begin_ns < window.end_ns and one.end_ns > window.begin_ns]
    return host.windows


def _window_of(host: Host, span: QueuedSpan) -> Window | None:
    launch: HostSpan = span.launch
    if launch.window is not None:
        return host.windows[launch.window]
    if span.kernel.kind == "gloo":
        return None
    return next((window for window in host.windows if window.begin_ns <= span.begin_ns < window.end_ns), None)
