"""analysis: faults of the host: what keeps the training loop from giving the device its work."""

from typing import Any

import polars as pl

from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.findings.finding import HIGH_SHARE, LEAST_SHARE, OVERHEAD_IS_HIGH, Finding, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.loader_advice import advise_on_loader
from kinetoscope.analysis.findings.waiting_faults import advice_on_call, waits_of_batches
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.texts.wording import counted, in_percent, shown

_FULL_COLLECTION = "gc generation 2"
_FEWEST_ASKED_FOR = 3
_LONGEST_GUARD = 400

_ADVICE_ON_PYTHON = (
    "Move what the loop does in Python between operators out of it, or let torch.compile(model) turn the model into "
    "one piece. With fused=True an optimizer that has this form, such as AdamW, takes one call instead of many."
)
_LONG_PAUSE_NS, _MOST_IN_LONG_PAUSES = 1_000_000, 0.6
"""Neither the Python of a model nor that of an optimizer takes so long between two operators."""

_ON_LONG_PAUSES = (
    "{share} of this is in {pauses} of {mean_ms:,.1f} ms on average in which the loop calls no operator: it {what}. "
)
_WHAT_RUNS = "computes in Python, or reads or saves files"
_WHAT_IS_NOT_KNOWN = "computes in Python, reads or saves files, or waits for something"
_WHAT_WAITS = "waits, as for a lock, a file, the network or another process"
_ADVICE_ON_LONG_PAUSES = "Do that every n-th step, or in a thread or a process of its own, ahead of the step."
_WITHOUT_LINES = "diagnose=True records in which lines, and for what it waits there. "
_MOSTLY_NOT_RUNNING = 0.5

_FIRST_STEPS = 2
"""What is compiled in more steps than these is compiled again and again."""

_ON_FIRST_COMPILATIONS = (
    "It may be the first compilation, which each training has once: record later steps to see whether it goes on. "
)

_ON_GAPS = (
    " The device is idle before some kernels that were launched in time: if it is before the others too, which this "
    "recording cannot show, less is saved."
)


_ON_UNSAMPLED_WORKERS = (
    "The workers started before the recording, so they were not sampled, and their lines are unknown. "
)


def input_bound(case: Case) -> Finding | None:
    """The loop waits for its next batch."""
    cost_ns = case.data_wait_ns()
    fix = Fix(Change(frozenset(["data"])), variant=FaultGraph.only_waits_for_batches, late=case.late_ranks)
    num_workers = max((one.num_workers for one in case.signs if one.num_workers is not None), default=None)
    loader = next((one.loader for one in case.signs if one.loader), {})
    percents = [one.processor_percent for one in case.signs if one.processor_percent is not None]
    waits = waits_of_batches(case)
    starts = [one.epoch_start_share for one in case.signs if one.epoch_start_share is not None]
    advice = advise_on_loader(case, num_workers, loader, waits, case.saving_ns(fix) if cost_ns else None)
    return case.finding(
        "input_bound",
        "The loop waits for its data",
        (_ON_UNSAMPLED_WORKERS if num_workers and case.has_unsampled_workers else "")
        + case.on_line("data", "the workers' time" if num_workers else "this time")
        + advice.text,
        cost_ns=cost_ns,
        fix=fix,
        where=Where(lines=case.where(case.stops("data")).lines),
        evidence={
            "data_wait_ns": cost_ns,
            "reachable_saving_ns": advice.reachable_ns,
            "num_workers": num_workers,
            "prefetch_factor": _number(loader.get("prefetch_factor")),
            "batch_size": _number(loader.get("batch_size")),
            "processor_percent": sum(percents) / len(percents) if percents else None,
            "waiting_share_of_batches": waits,
            "epoch_start_share": sum(starts) / len(starts) if starts else None,
            **advice.evidence,
            **case.evidence_of_line("data"),
        },
        is_estimate=advice.is_estimate,
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def host_bound(case: Case) -> Finding | None:
    """The device waits for its launches."""
    if not case.has_device:
        return None
    launch_ns, idle_ns = case.launching_ns(), case.without_work_ns()
    has_gaps = case.device_ns("idle_other_ns") >= LEAST_SHARE * HIGH_SHARE * case.step_ns
    return case.finding(
        "host_bound",
        "The device waits for the host to launch its kernels",
        'Capture the step in a CUDA graph with torch.compile(model, mode="reduce-overhead"), so that one launch does '
        "for many. A larger batch also gives the device more work for each launch." + (_ON_GAPS if has_gaps else ""),
        cost_ns=min(launch_ns, idle_ns),
        fix=Fix(Change(frozenset(["launch"])), variant=FaultGraph.without_launches),
        evidence={"launch_ns": launch_ns, "without_work_ns": idle_ns, "num_launches": case.mean_ns("num_launches")},
        high_share=OVERHEAD_IS_HIGH,
    )


def python_overhead(case: Case) -> Finding | None:
    """Python between operators takes time in which nothing is launched."""
    python_ns, idle_ns = case.host_ns("spare_python"), case.without_work_ns()
    hardly_runs = _hardly_runs(case, python_ns)
    return case.finding(
        "python_overhead",
        "The loop waits between operators" if hardly_runs else "Python between operators holds the step up",
        case.on_line("python")
        + (advice_on_call(case, "python").rstrip() or _advice_on_python(case, hardly_runs=hardly_runs)),
        cost_ns=min(python_ns, idle_ns),
        fix=Fix(
            Change(frozenset(["python"])),
            variant=FaultGraph.without_small_runs,
            most_variant=None if case.has_device else FaultGraph.without_all_python,
        ),
        where=case.where(case.stops("python")),
        evidence={
            "python_ns": python_ns,
            "share_of_operators": case.share_of_operators(case.calls("python")),
            "without_work_ns": idle_ns if case.has_device else None,
            **case.evidence_of_line("python"),
        },
        high_share=OVERHEAD_IS_HIGH,
    )


def _hardly_runs(case: Case, python_ns: float) -> bool:
    """Whether the process had a core for so little of the time that most of this cannot have been Python that ran;
    where states of threads were recorded, all of it was."""
    percents = [one.process_percent for one in case.signs]
    known = [percent for percent in percents if percent is not None]
    if case.knows_states or len(known) < len(percents) or not known or not case.step_ns:
        return False
    return max(known) / 100 < _MOSTLY_NOT_RUNNING * python_ns / case.step_ns


def _advice_on_python(case: Case, *, hardly_runs: bool) -> str:
    """What helps against many short pauses does nothing about a few long ones."""
    stops = case.stops("python")
    pauses = stops.filter(pl.col("total_ns") >= _LONG_PAUSE_NS * pl.col("num_calls"))
    num_pauses, pauses_ns = (int(pauses[name].sum()) for name in ("num_calls", "total_ns"))
    share = pauses_ns / stops["total_ns"].sum() if len(pauses) else 0.0
    if share < _MOST_IN_LONG_PAUSES:
        return _ADVICE_ON_PYTHON
    said = _ON_LONG_PAUSES.format(
        share=in_percent(float(share)),
        pauses=counted(num_pauses, "stretch"),
        mean_ms=pauses_ns / num_pauses / 1e6,
        what=_WHAT_WAITS if hardly_runs else _WHAT_RUNS if case.knows_states else _WHAT_IS_NOT_KNOWN,
    )
    is_sampled = any(one.is_sampled for one in case.signs)
    return said + ("" if is_sampled else _WITHOUT_LINES) + _ADVICE_ON_LONG_PAUSES


def synchronisation(case: Case) -> Finding | None:
    """Calls that wait for the device leave it without work afterwards."""
    stops = case.stops("sync")
    if not len(stops):
        return None
    sync_ns, idle_ns = case.total_ns("sync"), case.without_work_ns()
    return case.finding(
        "synchronisation",
        "The loop stops to wait for the device, which then waits for the loop",
        "Read values such as a loss with .item() or .cpu() only every n-th step, or a step late, from a copy made with "
        "non_blocking=True. torch.cuda.set_sync_debug_mode(1) warns at each call that waits.",
        cost_ns=min(sync_ns, idle_ns),
        fix=Fix(
            Change(frozenset(["sync", "transfer", "launch"])),
            variant=FaultGraph.without_copies_that_block,
            beyond=case.pauses,
        ),
        where=case.where(stops),
        evidence={"sync_ns": sync_ns, "num_calls": case.calls("sync"), "without_work_ns": idle_ns},
    )


def garbage_collection(case: Case) -> Finding | None:
    """Python's garbage collector stops the loop."""
    gc_ns = case.total_ns("gc")
    stops = case.stops("gc")
    where = case.where(stops, with_steps=True, lines_by="num_calls")
    line = where.lines[0] if where.lines else ""
    inside = case.inside_library("gc", line)
    share = case.share_of_line(stops, "num_calls")
    return case.finding(
        "garbage_collection",
        "Python's garbage collector stops the loop",
        _advice_on_full_collections(line, inside)
        if _are_full(stops)
        else f"{_advice_on_objects(line, inside, share)}Call gc.freeze() once the model is built, so that collections "
        "no longer visit what stays. Then call gc.disable(), and gc.collect() by hand between epochs.",
        cost_ns=gc_ns,
        fix=Fix(Change(frozenset(["gc"]))),
        where=where,
        evidence={
            "gc_ns": gc_ns,
            "num_collections": case.calls("gc"),
            "every_n_steps": case.interval("gc"),
            "share_of_line": share,
        },
    )


def _are_full(stops: pl.DataFrame) -> bool:
    """Whether the program asks for its collections: of those that Python begins, most are of younger generations."""
    return stops["name"].unique().to_list() == [_FULL_COLLECTION] and stops["num_calls"].sum() >= _FEWEST_ASKED_FOR


def _advice_on_full_collections(line: str, inside: str) -> str:
    place = f" at {line}{inside}" if line else ""
    return (
        f"Look for gc.collect(){place}: every collection looked through all objects, which Python by itself rarely "
        "does. Call it between epochs, not in steps. After gc.freeze(), once the model is built, it takes less time."
    )


def _advice_on_objects(line: str, inside: str, share: float | None) -> str:
    """A collection begins each time that so many objects were made: where most begin, most objects are made."""
    if not line or share is None:
        return ""
    return f"Make fewer objects at {line}, where {in_percent(share)} of the collections began{inside}. "


def recompilation(case: Case) -> Finding | None:
    """Torch compiles again during training."""
    compile_ns = case.host_ns("compile")
    stops = case.stops("compile")
    where = case.where(stops, with_steps=True)
    may_be_first = not stops["guard"].count() and len(where.steps) <= _FIRST_STEPS
    return case.finding(
        "recompilation",
        f"The model is compiled in {counted(len(where.steps), 'recorded step')}"
        if may_be_first
        else "The model is compiled again during training",
        (_ON_FIRST_COMPILATIONS if may_be_first else "") + _advice_on_guard(stops),
        cost_ns=compile_ns,
        fix=Fix(Change(frozenset(["compile"]))),
        is_estimate=may_be_first,
        where=where,
        evidence={"compile_ns": compile_ns, "num_compilations": case.calls("compile")},
    )


def _advice_on_guard(stops: pl.DataFrame) -> str:
    """What to do, and which failed guard cost most, if that was recorded."""
    advice = (
        "Give each batch the same shape: drop_last=True in the DataLoader, padding to a multiple, or "
        "torch.compile(model, dynamic=True)."
    )
    said = stops.drop_nulls("guard").head(1).to_dicts()
    if not said:
        return f"{advice} TORCH_LOGS=recompiles prints which guard failed."
    name, guard = shown(said[0]["name"].removeprefix("compile/")), shown(said[0]["guard"], _LONGEST_GUARD)
    return f"{name} was compiled again because {guard}. {advice}"


def profiler_cost(case: Case) -> Finding | None:
    """The profiler itself takes time of the steps; what it takes around a window is a number of its own."""
    cost_ns = case.in_steps_ns("profiler")
    return case.finding(
        "profiler_cost",
        "Recording itself takes time of the steps",
        "Leave out what you do not need: with_stack=False, record_shapes=False, profile_memory=False. This time is not "
        "the training's own; all other findings leave it out.",
        cost_ns=cost_ns,
        fix=Fix(Change(frozenset(["profiler"]))),
        where=case.where(case.in_steps("profiler"), with_steps=True),
        evidence={"profiler_ns": cost_ns, "around_window_ns": case.around_windows_ns("profiler")},
    )
