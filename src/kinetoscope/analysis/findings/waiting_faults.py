"""Rules for faults by the state of the loop's thread: blocked, waiting for a CPU, or busy in one line."""

import re
from typing import Any, NamedTuple

import polars as pl

from kinetoscope.analysis.contention import CpuUse
from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.finding import Finding, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.loop_states import is_waiting
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.texts.wording import counted, format_ms, in_percent

_OF_STARVED = 0.5
"""A limit that stopped the process for this part of what the loop had no processor for is the reason."""

_GIL = re.compile(r"GIL(?:, (.+) ran)?")
_FEW_SAMPLES = 5
_MIN_TITLE_SHARE = 0.5
"""A title names the line with this share of the time or more."""

_MOST = 0.4


class _Wait(NamedTuple):
    """The words of a title for a state of a thread, and the advice."""

    title: str
    advice: str


_IN_BACKGROUND = "call it every n-th step, or from a background thread."
_WAITS = {
    "another thread": _Wait(
        "waiting for another thread",
        "The loop waits at a lock, queue, event or join: hold the lock for less time, start the other thread's work a "
        "step earlier, or poll, as with queue.get_nowait().",
    ),
    "sleep": _Wait("in sleep", "Remove time.sleep() from the loop, or wait with threading.Event.wait()."),
    "fsync": _Wait("in fsync", f"os.fsync() returns only after the disk has written: {_IN_BACKGROUND}"),
    "file": _Wait(
        "in file I/O",
        "Write from a background thread with a queue, many values at a time, and read the next piece ahead.",
    ),
    "folder": _Wait(
        "in file-system calls",
        "Keep files open, and open, rename or delete files every n-th step or in a background thread: on network "
        "storage each call is a round trip.",
    ),
    "network": _Wait(
        "in network I/O",
        "Send and receive in a background thread with a queue, many values at a time. Set a timeout, so that a server "
        "that does not answer cannot stop the loop.",
    ),
    "pipe": _Wait(
        "in I/O on a pipe or local socket",
        "Start the work at the other end a step earlier, or poll with Connection.poll().",
    ),
    "events": _Wait("in select or poll", "Wait in a background thread, and pass its results on with a queue."),
    "child process": _Wait(
        "waiting for a child process",
        "Start it with subprocess.Popen() and check poll() in a later step, or do its work in this process.",
    ),
    "device": _Wait("in a device driver", f"Calls into a driver wait for the device: {_IN_BACKGROUND}"),
    "page fault": _Wait(
        "in page faults",
        "The first access to a mapped file (numpy.memmap, mmap) reads from disk: access it in a DataLoader worker "
        "first. If the machine swaps, reduce memory use.",
    ),
    "system call": _Wait("in a system call", f"System calls can wait for the kernel: {_IN_BACKGROUND}"),
}
_UNKNOWN_WAIT = _Wait(
    "for an unknown reason", "Record the reason: StackSampler() does so on Linux with the native extension."
)
_SAVE = _Wait(
    "saving a checkpoint",
    "Save less often, copy the state to the CPU and call torch.save() from a background thread, or call "
    "torch.distributed.checkpoint.async_save().",
)
_CALLS = ((re.compile(r"^(?:_?save|_legacy_save) of torch/serialization\.py"), _SAVE),)
"""Functions of libraries whose advice is better than that of the system call that they wait in."""


def blocked(case: Case) -> Finding | None:
    """The loop's own thread waits for something else than data, devices and other ranks."""
    blocked_ns, idle_ns = max(0.0, case.host_ns("blocked") - _waits_for_late_ns(case)), case.without_work_ns()
    reasons = case.sampled("blocked").to_dicts()
    first = reasons[0] if reasons else {}
    wait = _wait_of(first)
    has_operators = all(one.has_operators for one in case.signs)
    at = f" at {first['line']}" if first.get("line") and first["share"] >= _MIN_TITLE_SHARE else ""
    return case.finding(
        "blocked",
        lambda cost_ns: add_detail(f"Blocked: {format_ms(cost_ns)} ms/step {wait.title}", at),
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


def _waits_for_late_ns(case: Case) -> float:
    """Return the time per step that ranks wait for stragglers, where no collective was recorded that shows it."""
    return max((row.cost_ns_per_step for row in case.late if row.rank in case.late_phases), default=0)


def waits_of_batches(case: Case) -> float | None:
    """How much of the time of making a batch its maker waits, a worker or the loop, while nobody takes its processor;
    None where that is not known. While it waits for the GIL, another thread of its process computes."""
    known = case.sampled("data").drop_nulls("state")
    if int(known["num_samples"].sum()) < _FEW_SAMPLES:
        return None
    is_for_gil = pl.col("state").str.contains(f"^(?:{_GIL.pattern})$")
    waited = float(known.filter(is_waiting() & ~is_for_gil)["share"].sum())
    ran = (float(known["share"].sum()) - waited) * (1 - case.run_queue_delay.share)
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
        holder = f"the thread {gil[1]}" if gil[1] else "another thread"
        return _Wait(
            f"waiting for the GIL, held by {holder}",
            f"Only one thread runs Python at a time: move the work of {holder} to another process, such as a "
            "DataLoader worker, or into operators that release the GIL.",
        )
    return _WAITS.get(state, _UNKNOWN_WAIT)


def _on_reason(reason: dict[str, Any]) -> str:
    """Return a sentence on the line and the call that wait most."""
    if not reason.get("line"):
        return ""
    call = f", in {reason['call']}," if reason["call"] else ""
    return f"{reason['line']}{call} takes {100 * reason['share']:.0f} % of this time. "


def _where(case: Case, kind: str) -> Where:
    """The lines that were sampled most; few samples name one only if they all do."""
    lines = case.where(case.stops(kind)).lines
    found = case.sampled(kind).drop_nulls("line").to_dicts()
    return Where(lines=lines or tuple(row["line"] for row in found[:1] if row["share"] == 1))


def processor_contention(case: Case) -> Finding | None:
    """The job's own threads, or its own limit, keep the loop's thread from a CPU."""
    if not case.run_queue_delay.is_known:
        return None
    delay_ns, use = case.mean_ns("starved_ns"), case.cpu_use
    is_limited = bool(use.num_throttled) and (use.throttled_share or 0) >= _OF_STARVED * delay_ns / case.step_ns
    if not is_limited and not use.is_own_fault:
        return None
    title, advice = _on_limit(use) if is_limited else _on_own_threads(use)
    return case.finding(
        "processor_contention",
        lambda _: f"CPU contention: {title}, {delay_ns / 1e6:,.1f} ms/step",
        advice,
        cost_ns=min(delay_ns, case.without_work_ns()),
        fix=None,
        evidence={"starved_ns": delay_ns, "running_ns": case.mean_ns("running_ns"), **use.to_evidence()},
    )


def _on_limit(use: CpuUse) -> tuple[str, str]:
    """Return a title and advice for a job that reaches the CPU limit of its container."""
    return "the container's CPU limit throttles the loop", (
        f"The cgroup's CPU limit throttled this process {use.num_throttled:.0f} times (nr_throttled in cpu.stat), even "
        "while CPUs were idle. Raise it (docker run --cpus=N, limits.cpu in Kubernetes), or start fewer threads and "
        "workers."
    )


def _on_own_threads(use: CpuUse) -> tuple[str, str]:
    """Return a title and advice for a job with more threads than CPUs."""
    cores, threads = counted(use.num_cores or 1, "core"), use.num_threads or 1
    who = f"{counted(use.num_ranks, 'rank')} x {counted(threads, 'thread')} share {cores}"
    if use.num_ranks * threads <= (use.num_cores or 1):
        who = f"this job's processes and threads share {cores}"
    others = f", other processes {in_percent(use.others_share)}" if use.others_share is not None else ""
    return who, (
        f"This job used {in_percent(use.own_share or 0)} of the CPU time{others}. Set OMP_NUM_THREADS or call "
        "torch.set_num_threads() so that each rank, worker and torch thread has a core, or pass a smaller num_workers "
        "or n_jobs."
    )


def hot_line(case: Case) -> Finding | None:
    """Where no operators were recorded: the line at which the loop runs most."""
    samples = case.sampled("loop")
    found = case.sampled_line("loop")
    if found is None or any(one.has_operators for one in case.signs):
        return None

    def title(cost_ns: float) -> str:
        share = in_percent(cost_ns / case.step_ns)
        if found.is_title:
            return f"Hot line: {found.line} takes {share} of the step"
        return f"Hot line: {found.line}, or code before it, takes {share} of the step"

    return case.finding(
        "hot_line",
        title,
        f"{case.on_line('loop', 'the time of the loop without another finding')}"
        f"{advice_on_call(case, 'loop')}To record the operators that it calls, leave torch=True, the default.",
        cost_ns=found.share * case.total_ns("loop"),
        fix=None,
        where=Where(lines=case.where(case.stops("loop")).lines or (found.line,)),
        evidence={**case.evidence_of_line("loop"), "num_samples": int(samples["num_samples"].sum())},
        is_estimate=True,
    )
