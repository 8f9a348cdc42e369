"""Thresholds of stragglers: lateness to calls, groups of late ranks, their causes."""

import polars as pl

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.findings.straggler_groups import find_straggler_group
from kinetoscope.analysis.ranks.phase_stragglers import find_phase_stragglers
from kinetoscope.analysis.ranks.stragglers import StragglerRow, find_straggler_candidates
from kinetoscope.analysis.replay.load_balancing import alternating_excess_ns, has_uneven_steps
from support.synthetic_evidence import STEP_NS, Run, draw_call, find
from support.synthetic_evidence.thresholds import threshold

UNTRUSTED = {"waiting_ns": 100, "unexplained_ns": 50}


def late(shares, *, ranks=(0, 1), num_steps=10, **parts):
    """Return a run whose ranks work longer by these shares of 10 ms, by rank and step, than the others."""

    def work_ns(rank, step):
        by_step = shares.get(rank, {})
        return STEP_NS + round(by_step.get(step, 0) * STEP_NS)

    return Run(ranks=ranks, num_steps=num_steps, work_ns=work_ns, **parts)


def each(share, num_steps=10):
    return dict.fromkeys(range(num_steps), share)


def late_rows(waits, *, num_steps=10, bound_ns=0, has_waits=True, columns=None, num_ranks=2, starts=None):
    """Return the `find_straggler_candidates` of rank 1, that the others wait for by these shares of a step."""
    starts = starts or (lambda step: {1: waits.get(step, 0)})
    calls = [
        draw_call(
            step,
            {rank: round((10 * step + starts(step).get(rank, 0)) * STEP_NS) for rank in range(num_ranks)},
            waits=has_waits,
        )
        for step in range(num_steps)
    ]
    run = Run(ranks=range(num_ranks), num_steps=num_steps, columns=columns or (lambda rank, step: {}))
    return find_straggler_candidates(calls, run.step_rows(), bound_ns)


# -- rows of late ranks


@threshold("ranks.stragglers.MIN_SHARE_OF_STEP", 0.02)
def is_waited_for(share):
    return bool(late_rows(each(share)).rows)


@threshold("ranks.stragglers.MIN_CLOCK_BOUNDS", 4)
def is_no_error_of_clocks(times):
    bound_ns = STEP_NS // 10
    return bool(late_rows(each(times * 0.1), bound_ns=bound_ns).rows)


@threshold("ranks.stragglers._MIN_LATE_STEPS", between=(1, 2))
def is_late_often(num_steps):
    return bool(late_rows(each(1.0, num_steps)).rows)


@threshold("ranks.stragglers._MIN_STANDARD_ERRORS", 2)
def is_no_noise(errors):
    """While the others compute, a rank is late by 0.5 of a step on average, with noise."""
    noise = 0.5 * 3 / errors
    waits = {step: 0.5 + (noise if step % 2 else -noise) for step in range(10)}
    return 1 in [row.rank for row in late_rows(waits, num_ranks=8, has_waits=False).candidates]


@threshold("ranks.stragglers._EARLY_SHARE", between=(0.036, 0.044))
def is_behind_the_earliest(share):
    """The earliest 2 of 8 ranks are early by half of this share on average, which must be 2 % of a step."""
    found = late_rows({}, num_ranks=8, has_waits=False, starts=lambda step: dict.fromkeys(range(1, 8), share))
    return bool(found.candidates)


def steps_of(waits, num_steps=10):
    return late_rows(waits, num_steps=num_steps).rows[0].steps


@threshold("ranks.stragglers._MIN_LATE_SHARE", 0.5)
def is_a_late_step(share):
    return len(steps_of({0: 1, 1: 1, 2: 1, 3: 1, 4: share, 5: share})) == 6


@threshold("ranks.stragglers._MIN_ALWAYS_LATE_SHARE", 0.25)
def is_always_late(share):
    return len(steps_of({0: 1, 1: 1, 2: 1} | dict.fromkeys(range(3, 10), share))) == 10


@threshold("ranks.stragglers._MIN_SHARE_OF_STEPS", between=(6, 7))
def is_late_in_nearly_all(num_steps):
    return len(steps_of({0: 1, 1: 1} | dict.fromkeys(range(2, num_steps), 0.3))) == num_steps


@threshold("ranks.stragglers._MIN_SHARE_OF_LONGEST", 0.05)
def is_not_one_late_step(share):
    rows = late_rows(each(50 * share, 39) | {39: 50}, num_steps=40).rows
    return bool(rows) and len(rows[0].steps) == 40


@threshold("ranks.stragglers._MIN_SHARE_OF_LATENESS", 0.05)
def explains_lateness(share):
    def columns(rank, step):
        return {"data_wait_ns": round(rank * share * STEP_NS)}

    return late_rows(each(1.0), columns=columns).rows[0].cause == "data"


@threshold("ranks.stragglers.MIN_DELAY_TIMES_RUNNING", 2)
def waited_for_a_cpu(times):
    def columns(rank, step):
        return {"running_ns": round(rank * 0.4 * STEP_NS), "starved_ns": round(rank * times * 0.4 * STEP_NS)}

    return late_rows(each(1.0), columns=columns).rows[0].cause == "processor"


# -- groups


def row(rank, cost_ns, *steps, cause="data"):
    return StragglerRow(rank=rank, cost_ns_per_step=cost_ns, steps=steps, cause=cause, period=None, evidence=())


class DrawnLateness:
    """A run with these late ranks, in which some on time save so much."""

    def __init__(self, candidates, saving_ns):
        self.candidates, self.estimate_saving_ns = candidates, saving_ns

    def find_still_late(self, on_time):
        return []


def group(rows, saved, *, num_ranks=4):
    """Return the ranks that are late together, where some of them on time save so much."""
    return {one.rank for one in find_straggler_group(DrawnLateness(rows, saved), range(num_ranks), 1000)}


@threshold("findings.straggler_groups.MIN_LATE_SHARE", 0.03)
def is_left_out(share):
    return find("straggler", late({1: each(share)}, graph=UNTRUSTED)) is not None


@threshold("findings.straggler_groups._MIN_SHARE_OF_SAVING", between=(0.87, 0.905))
def is_enough_of_a_group(share):
    rows = [row(1, 900, 1, 2, cause="host"), row(2, 300, 3, 4, cause="host")]
    return group(rows, lambda ranks: 1000 if ranks == {1, 2} else share * 1000 if 1 in ranks else 0) == {1}


@threshold("findings.straggler_groups._MIN_SHARE_IN_TURNS", 0.25)
def is_alternately_late(share):
    rows = [row(1, 1000, 1, 2), row(2, round(1000 * share), 3, 4)]
    return not group(rows, lambda ranks: 1000 if 1 in ranks else 0)


@threshold("findings.straggler_groups._MIN_SHARE_OF_LATEST", 0.1)
def is_late_enough(share):
    rows = [row(1, 400, 1, 2, cause="host"), row(2, round(400 * share), 3, 4, cause="host")]
    return group(rows, lambda ranks: 1000 if ranks == {1, 2} else 800 if 1 in ranks else 0) == {1, 2}


@threshold("findings.straggler_groups._MIN_SHARE_KEPT", 2 / 3)
def keeps_enough_of_the_saving(share):
    rows = [row(1, 1000, 1, 2, cause="host"), row(2, 50, 3, 4, cause="host")]
    return group(rows, lambda ranks: 1000 if 2 in ranks else share * 1000) == {1}


@threshold("findings.straggler_groups._MIN_COMMON_STEPS_SHARE", 2 / 3)
def is_late_in_the_same_steps(share):
    num = round(share * 30)
    rows = [row(1, 1000, *range(num)), row(2, 1000, *range(30 - num, 30))]
    return bool(group(rows, lambda ranks: 1000 * len(ranks)))


@threshold("findings.straggler_groups.MIN_ONCE_SHARE", 0.05)
def is_late_once(share):
    return find("straggler", late({1: {4: 10 * share / (1 - share)}})) is not None


@threshold("findings.straggler_groups._MIN_STEPS", between=(3, 4))
def is_late_once_of_enough(num_steps):
    return find("straggler", late({1: {1: 1.0}}, num_steps=num_steps)) is not None


@threshold("findings.straggler_groups._MIN_TIMES_NEXT", 4)
def is_late_in_one_step(times):
    return find("straggler", late({1: {4: 1.0, 7: 1 / times}})) is not None


# -- other findings explain lateness


@threshold("findings.straggler_evidence._MIN_TIMES_ON_TIME", 1.5)
def are_all_loaders_slow(times):
    """A loop that waits for 4 ms, and the others less, gains 4 ms, or only the difference with that rank on time."""
    slow_ns = 4_000_000
    waits_ns = {1: slow_ns, 0: slow_ns - round(slow_ns / times)}

    def parts(rank, step):
        return dict.fromkeys(("data", "avoidable_data"), waits_ns[rank])

    drawn = late(
        {rank: each(ns / STEP_NS) for rank, ns in waits_ns.items()},
        parts=parts,
        columns=lambda rank, step: {"data_wait_ns": waits_ns[rank]},
    )
    return find("straggler", drawn) is None


def paused(shares, pauses, *, ranks=(0, 1)):
    """Return a run with these shares of lateness in each step, partly because of GC pauses."""
    stalls = [
        {"rank": rank, "kind": "gc", "step": step, "total_ns": round(share * STEP_NS)}
        for rank, share in pauses.items()
        for step in range(10)
    ]
    parts = {rank: {"gc": round(share * STEP_NS)} for rank, share in pauses.items()}
    shares = {rank: each(share) for rank, share in shares.items()}
    return late(shares, ranks=ranks, parts=lambda rank, step: parts.get(rank, {}), stalls=stalls)


@threshold("findings.straggler_causes._MIN_SHARE_OF_SAVING", between=(0.76, 0.84))
def pauses_explain(share):
    return find("straggler", paused({1: 0.07}, {1: share * 0.07})) is None


@threshold("findings.straggler_causes._MIN_UNEVEN_SHARE", 0.5)
def pauses_are_uneven(share):
    pauses = {0: 0.3 * (1 - share), 1: 0.3}
    return find("straggler", paused(pauses, pauses)) is None


@threshold("findings.straggler_causes._MIN_SHARE_OF_LONGEST", 0.25)
def has_the_pauses(share):
    pauses = {1: 0.3, 2: 0.3 * share}
    return 2 in find("garbage_collection", paused(pauses, pauses, ranks=(0, 1, 2))).where.ranks


@threshold("findings.straggler_descriptions._EQUAL_WAIT_SHARE", 0.75)
def is_of_the_first_group(share):
    """The data parallel group waits first, then the tensor parallel one for longer."""
    drawn = late({1: each(0.5)}, ranks=(0, 1), group_titles={"a": "data parallel", "b": "tensor parallel"})
    evidence = drawn.evidence()
    calls = [
        draw_call(step, {other: 0, 1: round(wait_ns)}, group=name)
        for step in range(10)
        for name, other, wait_ns in (("a", 2, share * 10**6), ("b", 0, 10**6))
    ]
    evidence.candidates.calls[:] = calls
    return "(data parallel group)" in find("straggler", evidence).title


# -- pipelines and uneven loads


@threshold("findings.pipeline._MIN_SHARE_OF_SAVING", between=(0.92, 0.96))
def is_the_slow_stage(share):
    """Stage 1 is slow in this share of the steps, and stage 2 in the others."""
    num_slow = round(50 * share)
    shares = {1: each(5, num_slow), 2: dict.fromkeys(range(num_slow, 50), 5)}
    calls = [
        draw_call(step, {rank: 0, rank + 1: 0}, name="send") for step in range(50) for rank in range(4) for _ in "ab"
    ]
    drawn = late(shares, ranks=range(5), num_steps=50, calls=calls)
    return drawn.evidence().slow_stages.ranks == {1}


def uneven(excess_of_first, excess_of_second=0.0, shapes=()):
    """Return a run of two alternating ranks: the first kernel takes longer, and the second, the long one, too."""
    usual_ns = {"attention": STEP_NS, "linear": 4 * STEP_NS}
    excess = {"attention": excess_of_first, "linear": excess_of_second}

    def kernels_ns(rank, step):
        sign = 1 if step % 2 == rank else -1
        of_each = [round(ns * (1 + sign * excess[name])) for name, ns in usual_ns.items()]
        return [(0, ns) for ns in of_each for _ in "ab"]

    times = dict.fromkeys(("p50_ns", "p95_ns", "max_ns", "name_p50_ns", "name_p95_ns"), 1)
    operators = [
        OperatorRow(
            name="aten::mm",
            shapes=f"[[8, {size}]]",
            num_calls=1,
            total_ns=1,
            self_ns=1,
            mean_ns=1,
            device_ns=1,
            **times,
        )
        for size in shapes
    ]
    return Run(
        ranks=(0, 1),
        has_gpu=True,
        kernel_names=[name for name in usual_ns for _ in "ab"],
        kernels_ns=kernels_ns,
        work_ns=lambda rank, step: sum(kernel_ns for _, kernel_ns in kernels_ns(rank, step)),
        operators=operators,
    )


@threshold("findings.imbalance_findings._MIN_LENGTHS", between=(2, 3))
def has_inputs_of_several_lengths(num_lengths):
    found = find("straggler", uneven(0.5, 0.3, shapes=range(100, 100 + num_lengths)))
    return "Their inputs were from" in found.advice


@threshold("replay.load_balancing._MIN_UNEVEN_EXCESS", 0.3)
def is_uneven(share):
    """The excess of the long kernels, as a share of the usual one, which is mostly that of the short ones."""
    excess = 0.4
    other = 0.0
    for _ in range(50):
        other = share * (excess**2 + 4 * other**2) / (excess + 4 * other)
    drawn = uneven(excess, other)
    most_ns = 2 * STEP_NS * (excess + 4 * other)
    return find("straggler", drawn).saving_ns_per_step > 0.99 * most_ns


def alternate(excess_of_ranks):
    """Return whether loads alternate: by rank the excess in its step, as a share of 1 ms."""
    ranks = range(len(excess_of_ranks))
    rows = [
        {
            "rank": rank,
            "step": step,
            "piece": 0,
            "load_ns": 10**6 * (1 + (excess_of_ranks[rank] if rank == step else 0)),
        }
        for step in ranks
        for rank in ranks
    ]
    loads = pl.DataFrame(rows).with_columns(even_ns=pl.col("load_ns").mean().over("step", "piece"))
    return alternating_excess_ns(loads, ranks) > 0


@threshold("replay.load_balancing._MAX_SHARE_OF_ONE", between=(0.7, 0.8))
def is_mostly_one_rank(share):
    return not alternate([share, *[(1 - share) / 3] * 3])


@threshold("replay.load_balancing._MIN_EXCESS", 0.1)
def exceeds_the_mean(share):
    """The fourth rank exceeds the mean by this share of the usual excess, which is nearly that of the others."""
    return alternate([1, 1, 1, 3 * share / (4 - share)])


@threshold("replay.load_balancing._MIN_SHARE_OF_RANKS", between=(8, 10))
def are_nearly_all(num_of_ten):
    return alternate([1] * num_of_ten + [0] * (10 - num_of_ten))


@threshold("replay.load_balancing._MIN_CORRELATION", 0.5)
def lasts_the_whole_step(correlation):
    """The second half of a step repeats the excess of the first one in this part of it."""
    other = (1 - correlation**2) ** 0.5
    pattern = [(1, 1), (-1, -1), (1, -1), (-1, 1)]
    rows = [
        {"rank": rank, "step": step, "time": 2 * step + half, "takes_ns": 10**6 * (5 + sign * load)}
        for step, (first, second) in enumerate(pattern)
        for half, load in enumerate((first, correlation * first + other * second))
        for rank, sign in ((0, 1), (1, -1))
    ]
    return has_uneven_steps(pl.DataFrame(rows))


# -- without collectives


@threshold("ranks.phase_stragglers._MAX_EQUAL_SHARE", 0.5)
def takes_as_long(share):
    """Rank 1 runs for 4 ms longer in a backward pass that takes it longer by this share of that: no rank waits."""

    def columns(rank, step):
        running_ns, longer_ns = 4_000_000 * rank, round(share * 4_000_000) * rank
        return {"backward_ns": 6_000_000 + longer_ns, "running_ns": running_ns, "starved_ns": 0, "forward_ns": 0}

    return not find_phase_stragglers(Run(ranks=(0, 1), columns=columns).step_rows(), []).rows
