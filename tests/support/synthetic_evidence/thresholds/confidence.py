"""Thresholds of confidence, ranking, and of the recording itself."""

from kinetoscope.analysis.findings.ranking import is_minor
from kinetoscope.analysis.memory.memory import MemoryRow
from support.synthetic_evidence import STEP_NS, Run, find
from support.synthetic_evidence.thresholds import threshold


def pauses(share, *, steps=None, num_steps=10, ranks=(0,), lines=None, **parts):
    """Return a run whose steps have GC pauses for this share of a step; or only some steps, each of its share."""
    shares = dict.fromkeys(range(num_steps), share) if steps is None else steps

    def gc_ns(rank, step):
        return round(shares.get(step, 0) * STEP_NS)

    stalls = [
        {"kind": "gc", "step": step, "num_calls": round(100 * of_line), "total_ns": gc_ns(0, step), "line": line}
        for step in range(num_steps)
        if gc_ns(0, step)
        for line, of_line in (lines or {None: 1}).items()
    ]
    return Run(
        ranks=ranks, num_steps=num_steps, parts=lambda rank, step: {"gc": gc_ns(rank, step)}, stalls=stalls, **parts
    )


def confidence_of(drawn, kind="garbage_collection"):
    found = find(kind, drawn)
    return None if found is None else found.confidence


@threshold("findings.confidence.HIGH_SHARE", 0.1)
def is_high(share):
    return confidence_of(pauses(share)) == "high"


@threshold("findings.confidence._MEDIUM_SHARE_OF_HIGH", 0.5)
def is_medium(share_of_high):
    return confidence_of(pauses(0.1 * share_of_high)) == "medium"


@threshold("findings.confidence.MIN_SHARE_OF_HIGH", 0.25)
def is_reported(share_of_high):
    return confidence_of(pauses(0.1 * share_of_high)) is not None


def python_between(share, *, all_share=None, **parts):
    """Return a run with avoidable Python for this share of a step, and with Python for ``all_share`` in all."""
    spare_ns, all_ns = (round(one * STEP_NS) for one in (share, all_share or share))
    stalls = [{"kind": "python", "name": "aten::mm", "step": step, "total_ns": spare_ns} for step in range(10)]
    times = {"python": all_ns, "avoidable_python": spare_ns}
    return Run(**{"parts": lambda rank, step: times, "stalls": stalls, **parts})


@threshold("findings.confidence.OVERHEAD_HIGH_SHARE", 0.2)
def is_high_overhead(share):
    return confidence_of(python_between(share), "python_overhead") == "high"


@threshold("findings.ranking._MAX_MINOR_SHARE", 0.03)
def has_an_entry_of_its_own(share):
    found = find("garbage_collection", pauses(share))
    return found is not None and not is_minor(found, STEP_NS)


@threshold("findings.ranking.MAX_URGENT_STEPS", 1000)
def is_not_urgent(num_steps):
    row = MemoryRow(rank=0, device=0, peak_bytes=10**9, peak_step=None, growth_bytes_per_step=10**6)
    total = 10**9 + round(num_steps * 10**6)
    found = find("memory_growth", Run(memory=[row], gpu={"bytes_by_device": {0: total}}))
    return found is not None and "out of memory" not in found.title


@threshold("findings.savings._MAX_SHARE_OF_ONE_STEP", 0.6)
def is_a_single_hiccup(share):
    others = dict.fromkeys(range(10), 1.5 * (1 - share) / 9)
    return confidence_of(pauses(0, steps=others | {4: 1.5 * share})) == "medium"


@threshold("findings.diagnosis._MAX_TIMES_MEAN", 4)
def is_not_replayed(times):
    """Ranks that wait for each other lose all pauses of each; 8 ranks lose 8 times the mean."""
    pause_ns = round(10 * 0.025 / times * STEP_NS)
    drawn = Run(
        ranks=range(8),
        parts=lambda rank, step: {"gc": pause_ns if rank == step else 0},
        work_ns=lambda rank, step: STEP_NS + (pause_ns if rank == step else 0),
        stalls=[{"rank": rank, "kind": "gc", "step": rank, "total_ns": pause_ns} for rank in range(8)],
    )
    return find("garbage_collection", drawn) is None


@threshold("findings.savings._MAX_EQUAL_SHARE", 0.02)
def has_a_larger_bound(share):
    found = find("python_overhead", python_between(0.1, all_share=0.1 + share))
    return found is not None and "max_saving_ns" in dict(found.evidence)


@threshold("findings.evidence.run._MAX_LOST_SHARE", 0.1)
def is_filtered(share):
    return confidence_of(pauses(0.2, gpu={"lost_share": share})) == "medium"


@threshold("findings.evidence.locations.MIN_NAMED_SHARE", 0.05)
def is_named(share):
    found = find("garbage_collection", pauses(0.2, lines={"a.py:1": 1 - share, "b.py:2": share}))
    return found is not None and "b.py:2" in found.where.lines


@threshold("steps.step_time.MIN_TIMED_STEPS", between=(2, 3))
def has_enough_steps(num_steps):
    return confidence_of(pauses(0.2, num_steps=num_steps)) == "high"


@threshold("windows.window.MIN_STEPS", between=(7, 8))
def has_a_distance(num_steps):
    found = find("garbage_collection", pauses(0.2, num_steps=num_steps))
    return found is not None and "every_n_steps" in dict(found.evidence)


@threshold("windows.window.MIN_RECURRING_STEPS", between=(2, 3))
def recurs(num_steps):
    cost_ns = STEP_NS // 2
    drawn = Run(
        parts=lambda rank, step: {"profiler": cost_ns if step < num_steps else 0},
        stalls=[{"kind": "profiler", "name": "read", "step": step, "total_ns": cost_ns} for step in range(num_steps)],
    )
    return find("profiler_cost", drawn) is not None


@threshold("steps.periods._MIN_OCCURRENCES", between=(2, 3))
def has_a_period(num_times):
    distance = {2: 5, 3: 3}[num_times]
    found = find("garbage_collection", pauses(0, steps={distance * number: 0.5 for number in range(num_times)}))
    return found is not None and found.period == distance


@threshold("replay.replay.MAX_UNEXPLAINED_SHARE", 0.05)
def is_untrusted(share):
    found = find("garbage_collection", pauses(0.2, graph={"waiting_ns": 1000, "unexplained_ns": round(1000 * share)}))
    return found is not None and found.saving_ns_per_step is None


def period(share_of_step, *, num_steps=12):
    found = find("garbage_collection", pauses(0, steps=share_of_step, num_steps=num_steps))
    return None if found is None else found.period


@threshold("steps.periods._MAIN_SHARE", between=(0.65, 0.75))
def has_most_of_the_time(share):
    """Every 3rd step has a long pause, with this share of the time, and each other step a short one."""
    short = 4 * 0.6 * (1 - share) / share / 8
    return period({step: short if step % 3 else 0.6 for step in range(12)}) == 3


@threshold("steps.periods._MIN_SHARE_OF_MAIN", 0.5)
def is_long_enough_to_count(share):
    """Every 2nd step has a pause, and two other steps have this share of it: if they count, none recurs regularly."""
    long = dict.fromkeys(range(0, 16, 2), 0.4)
    return period(long | {5: 0.4 * share, 9: 0.4 * share}, num_steps=16) is None


@threshold("steps.periods._MIN_REGULAR_SHARE", between=(3, 4))
def is_regular(num_of_five):
    """A pause comes in every 4th of 20 steps, but not each time."""
    return period({4 * number: 0.5 for number in range(num_of_five)}, num_steps=20) == 4
