"""report: what the numbers of a run are called: the same on a screen, on a page and in a notebook."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from kinetoscope.analysis.run_report import RunFacts
from kinetoscope.analysis.step_parts import DeviceParts, StepParts

_Parts = Mapping[str, float | None]

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
    "data": "bound by data",
    "host": "bound by the host",
    "compute": "bound by computing on the device",
    "communication": "bound by communication",
    "ranks": "bound by late ranks",
}
_PHASES = ("data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns")
_REMAINDERS = ("unknown_ns", "ahead_ns", "idle_ns")
AT_LEAST = (
    "Communication is at least what is told: some kernels look like it, and are of no library that Kinetoscope knows."
)


def bound(run: RunFacts) -> str | None:
    """What a step takes its time for, in a few words; None where that is not known."""
    return _BOUNDS.get(run["bound_by"])


@dataclass(frozen=True)
class Ledger:
    """One ledger of a step in words: the parts that take time, in nanoseconds, and the phases that are not known."""

    name: str
    parts: list[tuple[str, float]]
    unknown: list[str]


def ledgers(parts: StepParts) -> list[Ledger]:
    """Both ledgers of a step; the device's only where it is known."""
    host = _ledger("Host", cast("_Parts", parts["host"]), HOST_PARTS)
    return [host, *([_ledger("Device", parts["device"], DEVICE_PARTS)] if parts["device"] is not None else [])]


def _ledger(name: str, parts: _Parts | DeviceParts, words: Mapping[str, str]) -> Ledger:
    shown = [(part, word, cast("_Parts", parts).get(part)) for part, word in words.items()]
    return Ledger(
        name=name,
        parts=[(word, time_ns) for _, word, time_ns in shown if time_ns],
        unknown=[word for part, word, time_ns in shown if time_ns is None and part in _PHASES],
    )


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
