"""Steps of a run for a page that follows it: key figures, phases of the last steps, and the times of all steps."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from pathlib import Path
from statistics import median

from kinetoscope.core.text.wording import format_duration, format_memory
from kinetoscope.pages.run_list import Figure, LivePhase, LiveSteps, StepPiece
from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.pulses import StepsRow, find_pulse, group_rows
from kinetoscope.pulse.snapshot import NUM_LAST, RankSnapshot
from kinetoscope.status.health import RankStatus, RunStatus

MAX_PIECES = 120
"""Limit of columns in a picture of all steps."""

_LABELS = {Phase.DATA_WAIT: "waiting for data"}


def read_live_steps(run_folder: Path, status: RunStatus) -> LiveSteps | None:
    """Return the steps of a run with this status; None before its first step."""
    snapshots = [snapshot for snapshot in status.snapshots if snapshot.step_ns is not None]
    if not snapshots:
        return None
    first = snapshots[0].header.process
    pulse = find_pulse(run_folder, first.attempt.start)
    return LiveSteps(
        figures=[*_list_figures(status.ranks)],
        num_last=NUM_LAST,
        phases=_build_phases(snapshots),
        rank=first.ranks.rank,
        pieces=_build_pieces(pulse.rows) if pulse is not None else [],
    )


def _list_figures(ranks: Sequence[RankStatus]) -> Iterator[Figure]:
    """Yield the step time, the step, memory, loss and throughput, as far as they are known."""
    for name, attribute in (("Step time", "step_ns"), ("Over the run", "run_step_ns")):
        if times := _list_known(ranks, attribute):
            yield Figure(name, format_duration(median(times)))
    if steps := _list_known(ranks, "step"):
        yield Figure("Step", f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} to {max(steps):,}")
    for name, attribute in (("GPU memory", "device_bytes"), ("Memory", "resident_bytes")):
        if sizes := _list_known(ranks, attribute):
            yield Figure(name, format_memory(round(max(sizes))) + (" at most" if len(sizes) > 1 else ""))
    if losses := _list_known(ranks, "loss"):
        yield Figure("Loss", f"{losses[0]:.4g}")
    for name, attribute in (("Samples/s", "samples_per_s"), ("Tokens/s", "tokens_per_s")):
        if rates := _list_known(ranks, attribute):
            yield Figure(name, f"{sum(rates):,.4g}")


def _list_known(ranks: Iterable[RankStatus], attribute: str) -> list[float]:
    """Return an attribute of each rank that has it, by rank."""
    values = (getattr(rank, attribute) for rank in sorted(ranks, key=lambda rank: rank.rank))
    return [value for value in values if value is not None]


def _build_phases(snapshots: Sequence[RankSnapshot]) -> list[LivePhase]:
    """Return the mean of each phase over ranks; a phase that was not watched on one of them is unknown."""
    by_phase = zip(*(snapshot.phases_ns for snapshot in snapshots), strict=True)
    times = [_mean_or_none(values, len(snapshots)) for values in by_phase]
    whole_ns = sum(time_ns or 0 for time_ns in times)
    return [
        LivePhase(
            name=phase.name.lower(),
            label=_LABELS.get(phase, phase.name.lower()),
            time_ns=time_ns,
            share=None if time_ns is None or not whole_ns else time_ns / whole_ns,
        )
        for phase, time_ns in zip(Phase, times, strict=True)
    ]


def _mean_or_none(values: Sequence[float | None], count: int) -> float | None:
    """Return the sum of the values over ``count``; None if one of them is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / count if len(known) == len(values) else None


def _build_pieces(rows: Sequence[StepsRow]) -> list[StepPiece]:
    """Return at most about `MAX_PIECES` pieces of consecutive steps; older steps are known in blocks only."""
    size = ceil(sum(row.num_steps for row in rows) / MAX_PIECES)
    return [_build_piece(group) for group in group_rows(rows, size)]


def _build_piece(rows: Sequence[StepsRow]) -> StepPiece:
    num_steps, last = sum(row.num_steps for row in rows), rows[-1]
    return StepPiece(
        step=rows[0].step,
        last_step=last.step + last.num_steps - 1,
        num_steps=num_steps,
        mean_ns=sum(row.duration_ns for row in rows) / num_steps,
        max_duration_ns=max(row.max_duration_ns for row in rows),
        phases_ns=[_mean_or_none([row.by_phase[phase] for row in rows], num_steps) for phase in Phase],
    )
