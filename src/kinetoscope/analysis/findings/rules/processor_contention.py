"""Rule for CPU contention that the job causes itself: by its threads, or by the limit of its container."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.ranks.contention import CpuUse
from kinetoscope.core.text.wording import format_count, format_percent

_MIN_SHARE_OF_DELAY = 0.5
"""A limit that stopped the process for this share of the run-queue delay is the reason."""


@rule("processor_contention")
def find_processor_contention(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose run-queue delay."""
    if (delay_ns := evidence.cpu.delay.ns_per_step) is None:
        return
    use = evidence.cpu.use
    throttled_ns = (use.throttled_share or 0) * evidence.step_ns if use.num_throttled else 0.0
    is_limited = bool(use.num_throttled) and throttled_ns >= _MIN_SHARE_OF_DELAY * delay_ns
    if not is_limited and not use.is_job_oversubscribed:
        return
    title, advice = _advise_on_limit(use) if is_limited else _advise_on_own_threads(use)
    yield Diagnosis(
        title=lambda _: f"CPU contention: {title}, {delay_ns / 1e6:,.1f} ms/step",
        advice=advice,
        cost_ns=min(delay_ns, evidence.device_wait_ns),
        fix=None,
        evidence={"starved_ns": delay_ns, "running_ns": evidence.mean_ns("running_ns"), **use.to_evidence()},
    )


def _advise_on_limit(use: CpuUse) -> tuple[str, str]:
    """Return a title and advice for a job that reaches the CPU limit of its container."""
    return "the container's CPU limit throttles the loop", (
        "Raise the container's CPU limit (`docker run --cpus=N`, `limits.cpu` in Kubernetes), or start fewer threads "
        f"and workers. The limit throttled this process {use.num_throttled:.0f} times (nr_throttled in the cgroup's "
        "cpu.stat), even while CPUs were idle."
    )


def _advise_on_own_threads(use: CpuUse) -> tuple[str, str]:
    """Return a title and advice for a job with more threads than CPUs."""
    cores, threads = format_count(use.num_cores or 1, "core"), use.num_threads or 1
    who = f"{format_count(use.num_ranks, 'rank')} x {format_count(threads, 'thread')} share {cores}"
    if use.num_ranks * threads <= (use.num_cores or 1):
        who = f"this job's processes and threads share {cores}"
    others = f", other processes {format_percent(use.others_share)}" if use.others_share is not None else ""
    return who, (
        "Set `OMP_NUM_THREADS` or call `torch.set_num_threads()` so that each rank, worker and torch thread has a "
        "core, or pass a smaller `num_workers` or `n_jobs`. This job used "
        f"{format_percent(use.own_share or 0)} of the CPU time{others}."
    )
