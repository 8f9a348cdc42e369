"""Thresholds of the advice on input-bound loops."""

from kinetoscope.analysis.findings.evidence.window import WindowLoader
from support.synthetic_evidence import Run, find
from support.synthetic_evidence.thresholds import threshold

STEP_NS = 100_000_000
WALL_NS = 1_000_000_000


def waiting_loop(share, *, step_ns=STEP_NS, num_workers=0, settings=None, starts=None, own=None, num_cores=4, **parts):
    """Return the finding on a loop that waits for its data for this share of a step.

    Args:
        own: share of the time of all ``num_cores`` that the run uses.
    """
    wait_ns = round(share * step_ns)
    counters = {}
    if own is not None:
        busy_ns = round(own * num_cores * WALL_NS)
        counters = {"wall_ns": WALL_NS, "own_ns": busy_ns, "busy_ns": busy_ns, "cores": num_cores}
    drawn = Run(
        work_ns=lambda rank, step: step_ns,
        parts=lambda rank, step: {"data": wait_ns, "avoidable_data": wait_ns},
        stalls=[{"kind": "data", "name": "fetch", "step": step, "total_ns": wait_ns} for step in range(10)],
        data_wait_ns=wait_ns,
        loader=WindowLoader(num_workers, settings or {}, starts),
        **{"cpu": {"counters": counters}, **parts},
    )
    found = find("input_bound", drawn)
    assert found is not None
    return found


def sending_ns(**settings):
    return dict(waiting_loop(0.5, settings=settings).evidence)["batch_transfer_ns"]


def own_for(reached):
    """Return the share of 4 cores in use with which workers reach this share of half a step."""
    return 1 - 0.5 * reached - 1.2e6 / 4 / STEP_NS


@threshold("findings.loader_advice.MIN_REACHED_SHARE", 0.8)
def is_reached(share):
    return "reachable_saving_ns" not in dict(waiting_loop(0.5, own=own_for(share)).evidence)


@threshold("findings.loader_advice._MIN_USEFUL_SHARE", 0.3)
def is_useful(share):
    return "num_workers=" in waiting_loop(0.5, own=own_for(share)).advice


@threshold("findings.loader_costs._NS_PER_SENT_BATCH", 200_000)
def takes_no_more_for_a_batch(time_ns):
    return sending_ns(tensors=0) <= time_ns


@threshold("findings.loader_costs._NS_PER_SENT_TENSOR", 200_000)
def takes_no_more_for_a_tensor(time_ns):
    return sending_ns(tensors=11) - sending_ns(tensors=1) <= 10 * time_ns


@threshold("findings.loader_costs._NS_PER_SENT_BYTE", 0.7)
def takes_no_more_for_a_byte(time_ns):
    return sending_ns(tensors=0, bytes=10**6) - sending_ns(tensors=0) <= 10**6 * time_ns


@threshold("findings.loader_costs._DEFAULT_NUM_TENSORS", between=(1, 2))
def has_no_more_tensors(num_tensors):
    return sending_ns() <= sending_ns(tensors=num_tensors)


@threshold("findings.loader_costs._NS_PER_RECEIVED_BYTE", 0.1)
def receives_in_time(time_ns):
    """A loop that would wait for 20 % of what it saves, 10 ms, receives its batches instead."""
    settings = {"tensors": 0, "bytes": round((0.2 * 0.5 * STEP_NS - 200_000) / time_ns)}
    return "reachable_saving_ns" not in dict(waiting_loop(0.5, own=0.0, num_cores=64, settings=settings).evidence)


@threshold("findings.batch_transfer_advice.MIN_TRANSFER_COSTS", 3)
def is_worth_workers(times):
    return "num_workers=" in waiting_loop(times * 0.06, step_ns=10_000_000).advice


@threshold("findings.loader_advice._MIN_TRANSFER_COSTS_OF_POOL", 3)
def is_worth_more_workers(times):
    settings = {"bytes": round((STEP_NS / times - 600_000) / 0.7)}
    return "BatchSampler" not in waiting_loop(0.5, num_workers=1, settings=settings).advice


@threshold("findings.loader_advice._MAX_CHEAP_SAMPLE_NS", 50_000)
def has_costly_samples(time_ns):
    share = 100 * time_ns / 10_000_000
    settings = {"batch_size": 100}
    found = waiting_loop(share, step_ns=10_000_000, settings=settings, own=0.95, num_cores=1)
    return "BatchSampler" not in found.advice


@threshold("findings.loader_advice._MIN_WAITING_SHARE", 0.6)
def mostly_waits(share):
    states = {"file": share, "running": 1 - share}
    samples = [
        {"kind": "data", "line": "data.py:1", "state": state, "step": step, "total_ns": round(of_state * 10**6)}
        for step in range(10)
        for state, of_state in states.items()
    ]
    return "Building a batch waits" in waiting_loop(0.5, samples=samples).advice


@threshold("findings.loader_advice._MIN_EPOCH_START_SHARE", 0.4)
def is_of_starts(share):
    return "Build the DataLoader once" in waiting_loop(0.5, num_workers=2, starts=share).advice


@threshold("findings.cores.MIN_BUSY_SHARE", 0.8)
def is_busy(share):
    return "more workers would" in waiting_loop(0.2, cpu={"machine_percent": 100 * share}).advice


@threshold("findings.cores._MIN_IDLE_SHARE", 0.75)
def has_a_free_core(num_cores):
    return "num_workers=" in waiting_loop(0.2, num_workers=1, own=1 - num_cores / 4).advice


def num_advised(found):
    return int(found.advice.partition("num_workers=")[2].partition(",")[0])


@threshold("findings.loader_advice._MAX_WORKERS", between=(7, 8))
def advises_no_more(num_workers):
    return num_advised(waiting_loop(0.97)) <= num_workers


@threshold("findings.loader_advice._MAX_WAITING_WORKERS", between=(31, 32))
def advises_no_more_that_wait(num_workers):
    samples = [{"kind": "data", "state": "file", "step": step, "total_ns": 10**6} for step in range(10)]
    return num_advised(waiting_loop(0.99, step_ns=1_000_000_000, samples=samples)) <= num_workers
