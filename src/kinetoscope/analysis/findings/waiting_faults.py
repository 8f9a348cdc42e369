"""analysis: faults by what the loop's thread does: it is blocked, it has no processor, or it is at one line."""

import re
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from kinetoscope.analysis.findings.case import Case, on_busy_cores
from kinetoscope.analysis.findings.finding import Finding, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.known import sum_of_known
from kinetoscope.analysis.loop_states import is_waiting
from kinetoscope.analysis.replay.replay import Change

_MUCH_STOLEN = 0.03
_MOSTLY_BUSY = 80
"""If the machine's processors are less busy than this percent, others are free."""

_MOSTLY = 3
"""Who used the processors for so many times as long as the others is who had them."""

_OF_STARVED = 0.5
"""A limit that stopped the process for this part of what the loop had no processor for is the reason."""

_GIL = re.compile(r"GIL(?:, (.+) ran)?")
_FEW_SAMPLES = 5
_MOST = 0.4


class _Wait(NamedTuple):
    """What a state of a thread is called in a title, and what helps."""

    title: str
    advice: str


_WAITS = {
    "another thread": _Wait(
        "for another thread",
        "It waits at a lock, a queue, an event or a join: hold the lock for less time, give the other thread its work "
        "a step earlier, or ask whether it is done instead of waiting for it.",
    ),
    "sleep": _Wait(
        "in a sleep", "Take the time.sleep() out of the loop, or wait for what it waits for, with an event."
    ),
    "fsync": _Wait(
        "in an fsync, for the disk",
        "os.fsync() returns only when the disk has written: call it every n-th step, or from a thread of its own.",
    ),
    "file": _Wait(
        "for a file",
        "Write from a thread of its own, from a queue, and many values at a time; read the next piece ahead.",
    ),
    "folder": _Wait(
        "for the file system, which opens, renames or deletes files",
        "Keep files open, and do this every n-th step or on a thread of its own; on network storage each call is a "
        "round trip.",
    ),
    "network": _Wait(
        "for the network",
        "Send and receive in a thread of its own, with a queue between it and the loop, and many values at a time. "
        "With a timeout nobody waits for a server that does not answer.",
    ),
    "pipe": _Wait(
        "at a pipe or a local socket",
        "Let the process, or thread, at its other end work ahead, or ask whether it has answered instead of waiting.",
    ),
    "events": _Wait("for an event, in select or poll", "Let a thread of its own wait, and hand over what it gets."),
    "child process": _Wait(
        "for a child process",
        "Start it and look in a later step whether it has ended (subprocess.Popen and poll()), or do its work in this "
        "process.",
    ),
    "device": _Wait("for a device's driver", "Call it every n-th step, or from a thread of its own."),
    "page fault": _Wait(
        "for memory that is not there, in page faults",
        "Files that are mapped (numpy.memmap, mmap) are read from the disk when they are first touched: touch them in "
        "a worker. If memory is short, the system swaps: use less of it.",
    ),
    "system call": _Wait("in a system call", "Call it every n-th step, or from a thread of its own."),
}
_UNKNOWN_WAIT = _Wait(
    "", "The recording does not say for what: on Linux, StackSampler() says it, with the recorder in C."
)
_SAVE = _Wait(
    "while a checkpoint is saved",
    "Save more rarely; or copy the state to the CPU in the loop and call torch.save from a thread of its own, or use "
    "torch.distributed.checkpoint.async_save.",
)
_CALLS = ((re.compile(r"^(?:_?save|_legacy_save) of torch/serialization\.py"), _SAVE),)
"""Functions of libraries whose advice is better than that of the system call that they wait in."""


def blocked(case: Case) -> Finding | None:
    """The loop's own thread waits for something else than data, devices and other ranks."""
    blocked_ns, idle_ns = case.host_ns("blocked"), case.without_work_ns()
    reasons = case.sampled("blocked").to_dicts()
    first = reasons[0] if reasons else {}
    wait = _wait_of(first)
    has_operators = all(one.has_operators for one in case.signs)
    return case.finding(
        "blocked",
        f"The loop waits {wait.title}" if wait.title else "The loop waits, and nothing runs",
        _on_reason(first) + wait.advice,
        cost_ns=min(blocked_ns, idle_ns),
        fix=Fix(Change(frozenset(["blocked"]))) if has_operators else None,
        where=_where(case, "blocked"),
        evidence={
            "blocked_ns": blocked_ns,
            "share_of_reason": first.get("share"),
            "num_samples": sum(reason["num_samples"] for reason in reasons),
            **case.evidence_of_line("blocked"),
        },
        is_estimate=not has_operators or sum(reason["num_samples"] for reason in reasons) < _FEW_SAMPLES,
    )


def waits_of_batches(case: Case) -> float | None:
    """How much of the time of making a batch its maker waits, a worker or the loop, while nobody takes its processor;
    None where that is not known. While it waits for the GIL, another thread of its process computes."""
    known = case.sampled("data").drop_nulls("state")
    if int(known["num_samples"].sum()) < _FEW_SAMPLES:
        return None
    is_for_gil = pl.col("state").str.contains(f"^(?:{_GIL.pattern})$")
    waited = float(known.filter(is_waiting() & ~is_for_gil)["share"].sum())
    ran = (float(known["share"].sum()) - waited) * (1 - case.starved_share)
    return waited / (waited + ran)


def advice_on_call(case: Case, kind: str) -> str:
    """What helps at the line with most samples of a kind, if its call is known, or what it waits for where it waits for
    longer than it runs."""
    found = case.sampled(kind).drop_nulls("line").to_dicts()
    if not found or found[0]["share"] < _MOST:
        return ""
    known = [wait.advice for pattern, wait in _CALLS if pattern.match(found[0]["call"] or "")]
    reasons = case.sampled("blocked").filter(line=found[0]["line"]).to_dicts()
    waits = [_wait_of(reason) for reason in reasons if reason["total_ns"] > found[0]["total_ns"]]
    return next((f"{advice} " for advice in [*known, *(wait.advice for wait in waits)]), "")


def _wait_of(reason: dict[str, Any]) -> _Wait:
    for pattern, wait in _CALLS:
        if pattern.match(reason.get("call") or ""):
            return wait
    state = reason.get("state") or ""
    if gil := _GIL.fullmatch(state):
        who = f"the thread {gil[1]}" if gil[1] else "another thread"
        return _Wait(
            f"for the GIL, while {who} runs Python",
            f"Only one thread runs Python at a time: move the work of {who} to a process, as a DataLoader's workers "
            "are, or into operators, which release the GIL.",
        )
    return _WAITS.get(state, _UNKNOWN_WAIT)


def _on_reason(reason: dict[str, Any]) -> str:
    """A sentence on the line, and the call, that waits most."""
    if not reason.get("line"):
        return ""
    call = f", in {reason['call']}," if reason["call"] else ""
    return f"{reason['line']}{call} has {100 * reason['share']:.0f} % of this time. "


def _where(case: Case, kind: str) -> Where:
    """The lines that were sampled most; few samples name one only if they all do."""
    lines = case.where(case.stops(kind)).lines
    found = case.sampled(kind).drop_nulls("line").to_dicts()
    return Where(lines=lines or tuple(row["line"] for row in found[:1] if row["share"] == 1))


def processor_contention(case: Case) -> Finding | None:
    """The loop's thread is ready, but no processor runs it."""
    if not case.knows_states:
        return _starved_on_average(case)
    starved_ns = case.mean_ns("starved_ns")
    used = _processors(case)
    title, advice = _whose(used, starved_ns / case.step_ns)
    return case.finding(
        "processor_contention",
        title,
        advice,
        cost_ns=min(starved_ns, case.without_work_ns()),
        fix=None,
        evidence={"starved_ns": starved_ns, "running_ns": case.mean_ns("running_ns"), **used},
    )


def _starved_on_average(case: Case) -> Finding | None:
    """The same as the system profiler read it, which says neither in which steps that was nor who had the processors,
    nor how much of it matters."""
    if case.starved_percent is None:
        return None
    starved_ns = case.starved_percent / 100 * case.step_ns
    machine, own = (
        fmean(known) if (known := [value for value in values if value is not None]) else None
        for values in zip(*((one.processor_percent, one.process_percent) for one in case.signs), strict=True)
    )
    advice = _advice_without_states(machine, own)
    return case.finding(
        "processor_contention",
        "The loop is ready, but has no processor",
        f"For {case.starved_percent:.0f} % of the time its thread was ready to run, and no processor ran it. {advice} "
        "All times are longer than they would be on a quiet machine.",
        cost_ns=starved_ns,
        fix=None,
        evidence={"starved_ns": starved_ns, "processor_percent": machine, "process_percent": own},
        is_estimate=True,
    )


def _advice_without_states(machine_percent: float | None, own_percent: float | None) -> str:
    """What helps, by how busy the machine's processors were, and how much of one a process of the run had."""
    if machine_percent is not None and machine_percent < _MOSTLY_BUSY:
        return (
            f"The machine's cores were {machine_percent:.0f} % busy, so something keeps it from the others: a limit of "
            "its container (docker run --cpus, limits.cpu of Kubernetes) or of its processors (taskset, cpuset). "
            "diagnose=True records whether a limit has stopped it."
        )
    busy = ""
    if machine_percent is not None and own_percent is not None:
        busy = f"{on_busy_cores(machine_percent, own_percent)}. "
    return (
        f"{busy}Move other programs to another machine, or start fewer threads (OMP_NUM_THREADS, "
        "torch.set_num_threads) and workers. diagnose=True records who had the processors, or which limit stopped it."
    )


def _processors(case: Case) -> dict[str, float | None]:
    """What used the processors of the host on which loops were starved most: shares of all of them. Ranks on one host
    are one run, whose threads add up."""
    hosts = {row.rank: row.host for row in case.report.ranks}
    starved: dict[str | None, int] = {}
    for row in case.report.steps:
        starved[hosts.get(row.rank)] = starved.get(hosts.get(row.rank), 0) + (row.starved_ns or 0)
    host = max(starved, key=lambda name: starved[name], default=None)
    by_rank: dict[int | None, list[dict[str, int]]] = {}
    for one in case.signs:
        if one.processors.get("wall_ns") and hosts.get(one.rank) == host:
            by_rank.setdefault(one.rank, []).append(one.processors)
    ranks = [_mean_use(windows) for windows in by_rank.values()]
    if not ranks:
        return {}
    own = sum(rank["own_share"] or 0 for rank in ranks)
    return ranks[0] | {"own_share": own, "others_share": _less(ranks[0]["busy_share"], own)}


def _mean_use(windows: list[dict[str, int]]) -> dict[str, float | None]:
    """The mean of a rank's windows."""

    def total(name: str) -> int | None:
        return sum_of_known(window.get(name) for window in windows)

    cores, wall_ns = windows[0].get("cores"), total("wall_ns") or 1
    shares = {name: total(f"{name}_ns") for name in ("own", "busy", "steal")}
    found: dict[str, float | None] = {
        f"{name}_share": min(1.0, value / wall_ns / cores) if cores and value is not None else None
        for name, value in shares.items()
    }
    limits = {"throttled_share": _less(total("throttled_ns"), 0, wall_ns), "num_throttled": total("num_throttled")}
    return found | limits | {"num_cores": cores, "num_threads": windows[0].get("threads")}


def _less(value: float | None, other: float, of: float = 1) -> float | None:
    return None if value is None else max(0.0, value - other) / of


def _whose(used: dict[str, float | None], starved_share: float) -> tuple[str, str]:
    """The title and the advice, by who had the processors while the loop had none for this part of a step."""
    own, others, cores = used.get("own_share"), used.get("others_share"), used.get("num_cores")
    on_cores = f"the {cores:.0f} processors" if cores and cores > 1 else "the processor"
    threads = used.get("num_threads")
    if used.get("num_throttled") and (used.get("throttled_share") or 0) >= _OF_STARVED * starved_share:
        return "The loop waits for a processor: the container's limit stops it", (
            f"The limit of the cgroup has stopped this process {used['num_throttled']:.0f} times (nr_throttled in "
            "cpu.stat), also where processors were idle: raise it (docker run --cpus, limits.cpu of Kubernetes), or "
            "start fewer threads and workers."
        )
    if (used.get("steal_share") or 0) >= _MUCH_STOLEN:
        return "The loop waits for a processor, which the host of this virtual machine gives to others", (
            f"{100 * (used['steal_share'] or 0):.0f} % of the time was stolen (steal in /proc/stat): ask for "
            "processors that are not shared."
        )
    if own is None or others is None:
        return "The loop is ready, but has no processor", (
            "The recording does not say who had it: look at top. If it was this run, start fewer threads "
            "(OMP_NUM_THREADS, torch.set_num_threads) and fewer DataLoader workers; else move the other programs."
        )
    said = f"This run used {100 * own:.0f} % of {on_cores}, others {100 * others:.0f} %"
    if others * _MOSTLY > own and own * _MOSTLY > others:
        return "The loop waits for a processor, which this run and other programs share", (
            f"{said}. Move the other programs to another machine, and start no more ranks, workers and threads "
            "(OMP_NUM_THREADS, torch.set_num_threads) than there are processors."
        )
    if own > others:
        computing = f" torch computes on {threads:.0f} in each rank." if threads else ""
        return "The loop waits for a processor, which threads of this run have", (
            f"{said}.{computing} Set OMP_NUM_THREADS, or call torch.set_num_threads(), so that ranks, workers and "
            "these threads have a processor each, or pass fewer workers."
        )
    return "The loop waits for a processor, which other programs have", (
        f"{said}. Move the other programs to another machine, or keep processors for this one (taskset, cpuset). Times "
        "of other findings are longer than they would be on a quiet machine."
    )


def hot_line(case: Case) -> Finding | None:
    """Where no operators were recorded: the line at which the loop runs most."""
    samples = case.sampled("loop")
    found = case.sampled_line("loop")
    if found is None or any(one.has_operators for one in case.signs):
        return None
    is_told = found.share >= 0.5 and not found.is_late
    return case.finding(
        "hot_line",
        f"The loop's time goes to {found.line}" if is_told else "Where the loop's time goes, by line",
        f"{case.on_line('loop', 'the time of the loop that no other finding tells of')}"
        f"{advice_on_call(case, 'loop')}Which operators it calls was not recorded: torch=True, the default, does that.",
        cost_ns=found.share * case.total_ns("loop"),
        fix=None,
        where=Where(lines=case.where(case.stops("loop")).lines or (found.line,)),
        evidence={**case.evidence_of_line("loop"), "num_samples": int(samples["num_samples"].sum())},
        is_estimate=True,
    )
