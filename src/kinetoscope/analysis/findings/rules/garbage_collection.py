"""Rule for GC pauses: Python's garbage collector stops the loop."""

from collections.abc import Iterator

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.evidence.stalls import Stalls
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.ranks.run_queue_delay import DelayEffect
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms, format_percent

_FULL_COLLECTION = "gc generation 2"

_MIN_REQUESTED = 3
"""So many full collections, and no other ones, are requested by the program: Python starts more of younger objects."""

_MIN_TRIGGER_SHARE = 0.5
"""A title names the line that triggers this share of the collections or more."""


@rule("garbage_collection")
def find_garbage_collection(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose garbage collections."""
    stalls = evidence.stalls("gc")
    where = stalls.where(with_steps=True, lines_by="num_calls")
    line = where.lines[0] if where.lines else ""
    inside, share = stalls.inside_library(line), stalls.share_of_line("num_calls")
    trigger = f", triggered at {line}" if line and (share or 0) >= _MIN_TRIGGER_SHARE else ""
    yield Diagnosis(
        title=lambda cost_ns: add_detail(f"GC pauses: {format_ms(cost_ns)} ms/step", trigger),
        advice=_advise_on_requests(line, inside) if _are_requested(stalls) else _advise(line, inside, share),
        cost_ns=stalls.total_ns,
        fix=Fix(Change(frozenset(["gc"]))),
        where=where,
        evidence={
            "gc_ns": stalls.total_ns,
            "num_collections": stalls.num_calls,
            "every_n_steps": stalls.steps_between,
            "share_of_line": share,
        },
        stalls="gc",
        delay=DelayEffect.CONTAINED,
        is_at_line=True,
    )


def _are_requested(stalls: Stalls) -> bool:
    """Return whether the program requests its collections: all are full ones."""
    is_full = stalls.frame["name"].unique().to_list() == [_FULL_COLLECTION]
    return is_full and stalls.frame["num_calls"].sum() >= _MIN_REQUESTED


def _advise_on_requests(line: str, inside: str) -> str:
    location = f" at {line}{inside}" if line else ""
    return (
        f"Move `gc.collect()`{location} out of the step, for example between epochs: every collection was a full one, "
        "which Python rarely starts by itself. Call `gc.freeze()` once the model is built to make it faster."
    )


def _advise(line: str, inside: str, share: float | None) -> str:
    """Return the advice on collections that Python starts: most start where most objects are allocated."""
    on_line = ""
    if line and share is not None:
        on_line = (
            f"Allocate fewer objects at {line}, where {format_percent(share)} of the collections started{inside}. "
        )
    return (
        f"{on_line}Let collections skip the objects that stay, once the model is built: `gc.collect(); gc.freeze()`. "
        "Or call `gc.disable()`, and `gc.collect()` between epochs."
    )
