"""Thresholds of exposed communication."""

from support.synthetic_evidence import STEP_NS, Run, draw_call, find
from support.synthetic_evidence.thresholds import threshold

EXPOSED_NS = 3_000_000
WALL_NS = 1_000_000_000


def exposed(calls, exposed_ns=EXPOSED_NS, **parts):
    """Return the finding on a run that communicates for 3 ms of each step of 13."""
    columns = {"communication_wait_ns": exposed_ns}
    drawn = Run(transfer_ns=EXPOSED_NS, calls=calls, columns=lambda rank, step: columns, **parts)
    return find("exposed_communication", drawn)


def with_unknown(share):
    """Return the finding where this share of the time of calls has unknown waits."""
    known = [draw_call(step, {0: 0, 1: 0}, transfer_ns=round((1 - share) * 10**6)) for step in range(10)]
    unknown = [draw_call(step, {0: 0, 1: 0}, transfer_ns=round(share * 10**6), waits=None) for step in range(10)]
    return exposed([*known, *unknown])


@threshold("findings.rules.exposed_communication._MIN_UNKNOWN_SHARE", 0.05)
def advises_on_unknown_waits(share):
    return "the wait for stragglers is unknown" in with_unknown(share).advice


@threshold("findings.rules.exposed_communication._MAX_UNKNOWN_SHARE", between=(0.45, 0.55))
def has_unknown_waits(share):
    return with_unknown(share).confidence == "medium"


@threshold("findings.evidence.communication._MAX_SMALL_TRANSFERS_BYTES", 1_000_000)
def transfers_much(num_bytes):
    calls = [draw_call(step, {0: 0, 1: 0}, transfer_ns=10**6, num_bytes=round(num_bytes)) for step in range(10)]
    return "less than 1 MB" not in exposed(calls).advice


def is_waiting(times_ns, exposed_ns):
    """Return whether calls of 1 MB that take so long wait for a missing rank."""
    calls = [
        draw_call(step, {0: 0}, transfer_ns=round(time_ns), num_bytes=10**6) for step, time_ns in enumerate(times_ns)
    ]
    found = exposed(calls, exposed_ns, world_size=2, graph={"unjoined_share": 0.2})
    return "waiting for rank 1" in found.title


@threshold("findings.evidence.communication._MIN_CALLS", between=(7, 8))
def has_a_usual_time(num_calls):
    return is_waiting([10**6] * (num_calls - 1) + [STEP_NS], exposed_ns=10**6)


@threshold("findings.evidence.communication._MIN_TIMES_USUAL", 2)
def takes_longer_than_usual(times):
    usual_ns = STEP_NS // 2
    return is_waiting([usual_ns] * 5 + [times * usual_ns] * 5, exposed_ns=round(0.16 * usual_ns))


@threshold("findings.rules.exposed_communication._MIN_CROWDED_SHARE", 0.5)
def is_crowded(share):
    used = {"wall_ns": WALL_NS, "cores": 4, "own_ns": 4 * WALL_NS // 10}
    counters = used | {"busy_ns": round(4 * WALL_NS * (0.1 + share))}
    calls = [draw_call(step, {0: 0, 1: 0}, transfer_ns=10**6) for step in range(10)]
    return exposed(calls, cpu={"counters": counters}).confidence == "medium"
