"""report: what the numbers of a run are called: the same on a screen, on a page and in a notebook."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from kinetoscope.analysis.run_report import RunFacts
from kinetoscope.analysis.step_parts import StepParts

NOT_KNOWN = "not known"

HOST_PARTS = {
    "data_wait_ns": "waiting for data",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "communication_wait_ns": "waiting for communication",
    "sync_ns": "waiting for the device",
    "gc_ns": "garbage collection",
    "python_ns": "Python",
    "evaluation_ns": "evaluation",
    "between_ns": "between steps",
    "unknown_ns": NOT_KNOWN,
    "ahead_ns": "ahead of the device",
}
"""The parts of the host's ledger, in the order in which they are shown."""

DEVICE_PARTS = {
    "compute_ns": "computing",
    "exposed_communication_ns": "only communicating",
    "exposed_copy_ns": "only copying",
    "idle_ns": "idle",
}
"""The parts of the device's ledger."""

_BOUNDS = {
    "data": "it waits for data",
    "host": "the host takes the time",
    "compute": "the device computes",
    "communication": "it communicates",
    "ranks": "it waits for late ranks",
}
_REMAINDERS = ("unknown_ns", "ahead_ns", "idle_ns")
AT_LEAST = (
    "Communication is at least what is told: some kernels look like it, and are of no library that Kinetoscope knows."
)

_ENDINGS = {
    "killed": "This run was killed before it ended: what it had not written until then is missing.",
    "recording": "This run has not ended: this is what it has written until now.",
}


def ending(run: RunFacts) -> str | None:
    """What must be said first of a run that was killed, or that still runs; None for others."""
    return _ENDINGS.get(run["state"] or "")


def bound(run: RunFacts) -> str | None:
    """What a step takes its time for, in a few words; None where that is not known."""
    return _BOUNDS.get(run["bound_by"])


def ledger(parts: Mapping[str, float | None], words: Mapping[str, str]) -> list[tuple[str, float | None]]:
    """The parts of one ledger by their words. What takes no time is left out; None is not known."""
    return [(word, parts[name]) for name, word in words.items() if parts.get(name, 0) != 0]


def ledgers(parts: StepParts) -> Iterable[tuple[str, list[tuple[str, float | None]]]]:
    """Both ledgers of a step, each with its name; the device's only where it is known."""
    yield "Host", ledger(cast("Mapping[str, float | None]", parts["host"]), HOST_PARTS)
    if parts["device"] is not None:
        yield "Device", ledger(cast("Mapping[str, float | None]", parts["device"]), DEVICE_PARTS)


def largest_part(run: RunFacts) -> tuple[str, float] | None:
    """The part that takes most of a step, and its share: of the device's ledger where the host is ahead of it. What
    nobody did, or what is not known, is none."""
    parts, step_ns = run["parts"], run["step_ns"]
    if parts is None or not step_ns:
        return None
    is_ahead = parts["device"] is not None and (parts["host"]["ahead_ns"] or 0) > 0
    words = DEVICE_PARTS if is_ahead else HOST_PARTS
    side = cast("Mapping[str, Any]", parts["device"] if is_ahead else parts["host"])
    known = {name: side[name] or 0 for name in words if name not in _REMAINDERS}
    name = max(known, key=lambda name: known[name])
    return (words[name], known[name] / step_ns) if known[name] else None
