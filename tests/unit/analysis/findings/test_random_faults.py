"""Findings on random runs with one or two faults: the first one is right, sure where it should be, and comes true.

`make test-long` draws 200 runs anew and prints their first seed; KINETOSCOPE_SEED repeats them.
"""

import os
import random
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest

from trainsim import healthy_settings, planted_run
from trainsim.analyses import analyze_cached

NUM_RUNS = int(os.environ.get("KINETOSCOPE_RANDOM_RUNS", "0"))
FIRST_SEED = int(os.environ.get("KINETOSCOPE_SEED", random.SystemRandom().randrange(10**6) if NUM_RUNS else 1_000))
SEEDS = range(FIRST_SEED, FIRST_SEED + (NUM_RUNS or 6))

MATTERS, IS_LARGE = 0.05, 0.10
"""Faults without which a step would be shorter by these parts. Without a fault that matters a run says nothing."""

ENOUGH, TOLERANCE = 0.85, 0.02

UNLIKE_A_RERUN = ("float32_matmul", "float64")
"""The speed of the fixed kernel is unknown."""


class Verdict(NamedTuple):
    """Findings of one run. ``reported`` and ``off`` are of its large faults, and of those with a saving: the
    kind, whether it is reported with high confidence, and the error of its saving, or of its interval, as a
    share of a step."""

    seed: int
    is_first_right: bool
    kinds: tuple[str, ...]
    first: str
    reported: tuple[tuple[str, bool], ...]
    off: tuple[tuple[str, float], ...]


def _ranks(finding):
    return finding.where.ranks if finding.kind == "straggler" else ()


def places_of(finding, planted):
    """Return the faults that a finding names; none if it names something else."""
    if finding.kind != planted.finding or not {*_ranks(finding)} <= {*planted.ranks}:
        return ()
    named = [place for place, rank in zip(planted.places, planted.ranks, strict=False) if rank in _ranks(finding)]
    return tuple(named) or planted.places


def names(run, finding, planted):
    """Return whether a finding names a fault: of ranks that are late together, those whose removal gains nearly all."""
    places = places_of(finding, planted)
    if places in ((), planted.places):
        return bool(places)
    return run.saving_ns_per_step(run.without(*places)) > ENOUGH * run.saving_ns_per_step(run.without(*planted.places))


def gain(run, places, late):
    """Return the saving per step without some faults; also with ranks on time, if other ranks are late."""
    alone = run.saving_ns_per_step(run.without(*places))
    others = tuple(place for place in late if place not in places)
    if not others or {*places} & {*late}:
        return alone
    return min(
        alone, run.saving_ns_per_step(run.without(*places, *others)) - run.saving_ns_per_step(run.without(*others))
    )


def hide_each_other(run, gains):
    """Return whether two faults hide each other: together they cost more than both alone, and no trace shows the one
    while the other is there, such as a slow loader that is never waited for, without sampled workers; or the idle time
    of a device before a kernel that was launched later still. A note, or the advice, mentions it."""
    settings = run.settings
    kinds = {fault.kind for fault in settings.faults}
    is_unseen = ("slow_loader" in kinds and settings.workers_do == "nothing") or "idle_gaps" in kinds
    if len(gains) < 2 or not is_unseen:
        return False
    together = run.saving_ns_per_step(run.without()) * run.num_steps / run.time_ns
    return together > sum(gains.values()) + TOLERANCE


def off_ns(finding, gain_ns):
    """Return the error of a saving against the gain of a rerun; 0 within the interval of a finding."""
    least_ns = finding.saving_ns_per_step
    most_ns = dict(finding.evidence).get("max_saving_ns", least_ns)
    return min(max(gain_ns, least_ns), most_ns) - gain_ns


@cache
def verdict(seed):
    """Return the verdict on one run; None where no fault matters."""
    settings, all_planted = planted_run(seed)
    run, report = analyze_cached(settings)
    step_ns = run.time_ns / run.num_steps
    late = next((one.places for one in all_planted if one.finding == "straggler"), ())
    gains = {one: run.saving_ns_per_step(run.without(*one.places)) / step_ns for one in all_planted}
    matter = [one for one, share in gains.items() if share > MATTERS or one.finding == "memory_growth"]
    if not matter:
        return None
    reported, off = [], []
    for one in matter:
        found = next((finding for finding in report.findings if names(run, finding, one)), None)
        if gains[one] > IS_LARGE:
            reported.append((one.finding, found is not None and found.confidence == "high"))
        if found is None or found.saving_ns_per_step is None or one.finding in UNLIKE_A_RERUN:
            continue
        if not hide_each_other(run, gains):
            off.append((one.finding, off_ns(found, gain(run, places_of(found, one), late)) / step_ns))
    first = report.findings[0] if report.findings else None
    return Verdict(
        seed,
        first is not None and any(names(run, first, one) for one in matter),
        tuple(f"{one.finding} {one.ranks or ''} {gains[one]:.0%}" for one in all_planted),
        f"{first.kind} {_ranks(first) or ''} {first.confidence}" if first is not None else "none",
        tuple(reported),
        tuple(off),
    )


@pytest.fixture(scope="module")
def verdicts():
    print(f"KINETOSCOPE_SEED={FIRST_SEED}, {len(SEEDS)} runs")
    return [found for seed in SEEDS if (found := verdict(seed)) is not None]


def shown(verdicts):
    return "\n".join([f"KINETOSCOPE_SEED={FIRST_SEED}", *map(str, verdicts)])


def test_the_first_finding_names_a_fault_in_95_of_100(verdicts):
    wrong = [one for one in verdicts if not one.is_first_right]
    assert len(wrong) <= 0.05 * len(verdicts), shown(wrong)


def test_at_least_80_percent_of_large_faults_have_high_confidence(verdicts):
    reported = [is_reported for one in verdicts for _, is_reported in one.reported]
    assert reported.count(True) >= 0.8 * len(reported), shown(
        one for one in verdicts if not all(known for _, known in one.reported)
    )


def test_savings_are_those_of_the_run_without_the_fault(verdicts):
    """Remaining failures are off by 2 to 3 %, mostly for the Python around calls of ``.item()``."""
    wrong = [one for one in verdicts if any(abs(share) > TOLERANCE for _, share in one.off)]
    assert len(wrong) <= 0.03 * len(verdicts), shown(wrong)


def test_no_healthy_run_has_a_finding_of_high_confidence():
    wrong = {}
    for seed in SEEDS[: max(3, len(SEEDS) // 2)]:
        _, report = analyze_cached(
            replace(healthy_settings(seed, (300_000, 3_000_000, 30_000_000)[seed % 3]), noise=0.03)
        )
        wrong[seed] = [found.kind for found in report.findings if found.confidence == "high"]
    assert not any(wrong.values()), wrong
