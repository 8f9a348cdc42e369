"""analysis: faults by what the loop's thread does: it is blocked, it has no processor, or it is at one line."""

import re
from typing import Any, NamedTuple

import polars as pl

from kinetoscope.analysis.contention import CpuUse
from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.finding import Finding, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.loop_states import is_waiting
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.texts.wording import counted, in_percent

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
    """The job's own threads, or its own limit, keep the loop's thread from a CPU."""
    if not case.knows_states:
        return None
    delay_ns, use = case.mean_ns("starved_ns"), case.cpu_use
    is_limited = bool(use.num_throttled) and (use.throttled_share or 0) >= _OF_STARVED * delay_ns / case.step_ns
    if not is_limited and not use.is_own_fault:
        return None
    title, advice = _on_limit(use) if is_limited else _on_own_threads(use)
    return case.finding(
        "processor_contention",
        f"CPU contention: {title}, {delay_ns / 1e6:,.1f} ms/step",
        advice,
        cost_ns=min(delay_ns, case.without_work_ns()),
        fix=None,
        evidence={"starved_ns": delay_ns, "running_ns": case.mean_ns("running_ns"), **use.to_evidence()},
    )


def _on_limit(use: CpuUse) -> tuple[str, str]:
    """Return a title and advice for a job that reaches the CPU limit of its container."""
    return "the container's CPU limit stops the loop", (
        f"The limit of the cgroup stopped this process {use.num_throttled:.0f} times (nr_throttled in cpu.stat), "
        "also while CPUs were idle. Raise it (docker run --cpus, limits.cpu of Kubernetes), or start fewer threads "
        "and workers."
    )


def _on_own_threads(use: CpuUse) -> tuple[str, str]:
    """Return a title and advice for a job with more threads than CPUs."""
    cores, threads = counted(use.num_cores or 1, "core"), use.num_threads or 1
    who = f"{counted(use.num_ranks, 'rank')} x {counted(threads, 'thread')} share {cores}"
    if use.num_ranks * threads <= (use.num_cores or 1):
        who = f"this job's threads and workers share {cores}"
    others = f", other processes {in_percent(use.others_share)}" if use.others_share is not None else ""
    return who, (
        f"This job used {in_percent(use.own_share or 0)} of the CPU time{others}. Set OMP_NUM_THREADS, or call "
        "torch.set_num_threads(), so that ranks, workers and torch's threads have a core each, or pass fewer workers."
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
