"""Rules for faults on the CPU: time in which the training loop launches no work."""

from typing import Any

import polars as pl

from kinetoscope.analysis.findings.case import Case
from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.findings.finding import HIGH_SHARE, LEAST_SHARE, OVERHEAD_IS_HIGH, Finding, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.loader_advice import advise_on_loader
from kinetoscope.analysis.findings.titles import add_detail, format_rate
from kinetoscope.analysis.findings.waiting_faults import advice_on_call, waits_of_batches
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.texts.wording import counted, format_ms, in_percent, shown

_FULL_COLLECTION = "gc generation 2"
_FEWEST_ASKED_FOR = 3
_LONGEST_GUARD = 400
_LONGEST_COMPILED = 30
_MIN_TRIGGER_SHARE = 0.5
"""A title names the line that triggers collections from this share of them on."""

_ADVICE_ON_PYTHON = (
    "Move Python code between operators out of the loop, or compile the model: model = torch.compile(model). Pass "
    "fused=True to an optimizer that has it, as in torch.optim.AdamW(..., fused=True): one call replaces many."
)
_LONG_PAUSE_NS, _MOST_IN_LONG_PAUSES = 1_000_000, 0.6
"""Neither the Python of a model nor that of an optimizer takes so long between two operators."""

_ON_LONG_PAUSES = (
    "{share} of this time is in {pauses} of {mean_ms:,.1f} ms on average in which the loop calls no operator: it "
    "{what}. "
)
_WHAT_RUNS = "runs Python code, or reads or writes files"
_WHAT_IS_NOT_KNOWN = "runs Python code, reads or writes files, or waits"
_WHAT_WAITS = "waits, for example for a lock, a file, the network or another process"
_ADVICE_ON_LOOPS = "Replace loops over elements, if there are any, with tensor operators. "
_ADVICE_ON_LONG_PAUSES = "Do this work every n-th step, or ahead of the step in a background thread or process."
_WITHOUT_LINES = "Pass diagnose=True to record the lines, and what the loop waits for there. "
_MOSTLY_NOT_RUNNING = 0.5

_FIRST_STEPS = 2
"""What is compiled in more steps than these is compiled again and again."""

_ON_FIRST_COMPILATIONS = (
    "This may be the first compilation, which every run has once: record later steps to see whether it recurs. "
)

_ON_GAPS = (
    " The GPU also idles before some kernels that were launched in time. If it does so before the other kernels, which "
    "this recording cannot show, the saving is smaller."
)


_ON_UNSAMPLED_WORKERS = "The workers started before the recording, so their lines were not sampled. "

_DISTRIBUTIONS = "torch/distributions/"
_ON_DISTRIBUTIONS = (
    "torch.distributions validates its arguments with a sync: pass validate_args=False, or call "
    "torch.distributions.Distribution.set_default_validate_args(False). "
)


def input_bound(case: Case) -> Finding | None:
    """The loop waits for its next batch."""
    cost_ns = case.data_wait_ns()
    fix = Fix(Change(frozenset(["data"])), variant=FaultGraph.only_waits_for_batches, late=case.on_time)
    num_workers = max((one.num_workers for one in case.signs if one.num_workers is not None), default=None)
    loader = next((one.loader for one in case.signs if one.loader), {})
    percents = [one.processor_percent for one in case.signs if one.processor_percent is not None]
    waits = waits_of_batches(case)
    starts = [one.epoch_start_share for one in case.signs if one.epoch_start_share is not None]
    advice = advise_on_loader(case, num_workers, loader, waits, case.saving_ns(fix) if cost_ns else None)
    waits_for = "its next batch" if num_workers is None and not loader else "the DataLoader"
    return case.finding(
        "input_bound",
        lambda cost_ns: f"Input-bound: the loop waits {format_ms(cost_ns)} ms/step for {waits_for}",
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
        lambda cost_ns: f"Launch-bound: the GPU idles {format_ms(cost_ns)} ms/step between kernel launches",
        'Capture the step in a CUDA graph: model = torch.compile(model, mode="reduce-overhead"). One launch then '
        "replaces many. A larger batch also gives the GPU more work per launch." + (_ON_GAPS if has_gaps else ""),
        cost_ns=min(launch_ns, idle_ns),
        fix=Fix(Change(frozenset(["launch"])), variant=FaultGraph.without_launches),
        evidence={"launch_ns": launch_ns, "without_work_ns": idle_ns, "num_launches": case.mean_ns("num_launches")},
        high_share=OVERHEAD_IS_HIGH,
    )


def python_overhead(case: Case) -> Finding | None:
    """Python between operators takes time in which nothing is launched."""
    python_ns, idle_ns = case.host_ns("spare_python"), case.without_work_ns()
    hardly_runs = _hardly_runs(case, python_ns)

    def title(cost_ns: float) -> str:
        time = format_ms(cost_ns)
        if hardly_runs:
            return add_detail(f"Idle process: the loop waits {time} ms/step between operators", case.at_line("python"))
        between = "without kernel launches" if case.has_device else "between operators"
        return add_detail(f"Python overhead: {time} ms/step {between}", case.at_line("python"))

    return case.finding(
        "python_overhead",
        title,
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
    if case.run_queue_delay.is_known or len(known) < len(percents) or not known or not case.step_ns:
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
        pauses=counted(num_pauses, "pause"),
        mean_ms=pauses_ns / num_pauses / 1e6,
        what=_WHAT_WAITS if hardly_runs else _WHAT_RUNS if case.run_queue_delay.is_known else _WHAT_IS_NOT_KNOWN,
    )
    is_sampled = any(one.is_sampled for one in case.signs)
    on_loops = "" if hardly_runs else _ADVICE_ON_LOOPS
    return said + ("" if is_sampled else _WITHOUT_LINES) + on_loops + _ADVICE_ON_LONG_PAUSES


def synchronisation(case: Case) -> Finding | None:
    """Calls that wait for the device leave it without work afterwards."""
    stops = case.stops("sync")
    if not len(stops):
        return None
    sync_ns, idle_ns = case.total_ns("sync"), case.without_work_ns()
    where = case.where(stops)
    rate = format_rate(case.calls("sync"))
    calls = "1 blocking call/step stalls" if rate == "1" else f"{rate} blocking calls/step stall"
    is_in_distributions = any(_DISTRIBUTIONS in line for line in (*where.lines, *_calls_of_samples(case, "sync")))
    return case.finding(
        "synchronisation",
        lambda cost_ns: f"Host-device sync: {calls} the GPU for {format_ms(cost_ns)} ms",
        (_ON_DISTRIBUTIONS if is_in_distributions else "")
        + "Read values such as the loss every n-th step, or one step late from a copy: loss.detach().to('cpu', "
        "non_blocking=True). torch.cuda.set_sync_debug_mode(1) warns at each blocking call.",
        cost_ns=min(sync_ns, idle_ns),
        fix=Fix(
            Change(frozenset(["sync", "transfer", "launch"])),
            variant=FaultGraph.without_copies_that_block,
            beyond=case.pauses,
        ),
        where=where,
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
        lambda cost_ns: add_detail(
            f"GC pauses: {format_ms(cost_ns)} ms/step",
            f", triggered at {line}" if line and (share or 0) >= _MIN_TRIGGER_SHARE else "",
        ),
        _advice_on_full_collections(line, inside)
        if _are_full(stops)
        else f"{_advice_on_objects(line, inside, share)}Call gc.freeze() once the model is built: collections then "
        "skip the objects that stay. Or call gc.disable(), and gc.collect() between epochs.",
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
    location = f" at {line}{inside}" if line else ""
    return (
        f"Move gc.collect(){location} out of the step, for example between epochs: every collection was a full one, "
        "which Python rarely starts by itself. Call gc.freeze() once the model is built to make it faster."
    )


def _advice_on_objects(line: str, inside: str, share: float | None) -> str:
    """A collection begins each time that so many objects were made: where most begin, most objects are made."""
    if not line or share is None:
        return ""
    return f"Allocate fewer objects at {line}, where {in_percent(share)} of the collections started{inside}. "


def recompilation(case: Case) -> Finding | None:
    """Torch compiles again during training."""
    compile_ns = case.host_ns("compile")
    stops = case.stops("compile")
    where = case.where(stops, with_steps=True)
    may_be_first = not stops["guard"].count() and len(where.steps) <= _FIRST_STEPS
    num_compiles, name = int(stops["num_calls"].sum()), _name_of_compiled(stops)

    def title(cost_ns: float) -> str:
        if may_be_first:
            return f"Compilation in {counted(len(where.steps), 'recorded step')}: {format_ms(cost_ns)} ms/step"
        return f"Recompilation: {counted(num_compiles, 'recompile')}{name}, {format_ms(cost_ns)} ms/step"

    return case.finding(
        "recompilation",
        title,
        (_ON_FIRST_COMPILATIONS if may_be_first else "") + _advice_on_guard(stops),
        cost_ns=compile_ns,
        fix=Fix(Change(frozenset(["compile"]))),
        is_estimate=may_be_first,
        where=where,
        evidence={"compile_ns": compile_ns, "num_compilations": case.calls("compile")},
    )


def _advice_on_guard(stops: pl.DataFrame) -> str:
    """Return the advice, with the failed guard that cost most where one was recorded."""
    advice = (
        "Give each batch the same shape: DataLoader(..., drop_last=True), pad to a multiple, or "
        "torch.compile(model, dynamic=True)."
    )
    failed = stops.drop_nulls("guard").head(1).to_dicts()
    if not failed:
        return f"{advice} Set TORCH_LOGS=recompiles to print the guards that fail."
    name, guard = shown(failed[0]["name"].removeprefix("compile/")), shown(failed[0]["guard"], _LONGEST_GUARD)
    return f"{name} was compiled again because {guard}. {advice}"


def _name_of_compiled(stops: pl.DataFrame) -> str:
    """Return the recompiled function after "of"; "" where it is unknown or too long for a title."""
    names = stops["name"].drop_nulls().unique().to_list()
    name = shown(names[0].removeprefix("compile/")) if len(names) == 1 else ""
    return f" of {name}" if 0 < len(name) <= _LONGEST_COMPILED else ""


def _calls_of_samples(case: Case, kind: str) -> list[str]:
    """Return the library calls in the samples of a kind, as ``function of file``."""
    return case.sampled(kind)["call"].drop_nulls().to_list()


def profiler_cost(case: Case) -> Finding | None:
    """The profiler itself takes time of the steps; what it takes around a window is a number of its own."""
    cost_ns = case.in_steps_ns("profiler")
    return case.finding(
        "profiler_cost",
        lambda cost_ns: f"Profiler overhead: {format_ms(cost_ns)} ms/step of this recording",
        "Switch off what you do not need: with_stack=False, record_shapes=False, profile_memory=False. The other "
        "findings leave this time out.",
        cost_ns=cost_ns,
        fix=Fix(Change(frozenset(["profiler"]))),
        where=case.where(case.in_steps("profiler"), with_steps=True),
        evidence={"profiler_ns": cost_ns, "around_window_ns": case.around_windows_ns("profiler")},
    )
