"""Sentences on a run and its findings, shared by terminals and notebooks."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from kinetoscope.analysis.findings.finding import Finding, Where
from kinetoscope.analysis.findings.triable import is_triable
from kinetoscope.analysis.ranks.contention import build_contention_notes
from kinetoscope.analysis.ranks.stragglers import StragglerRow
from kinetoscope.analysis.run_report import RunFacts, RunReport, unfinished_notice
from kinetoscope.analysis.steps.all_steps import AllSteps, describe_abnormal_recording
from kinetoscope.analysis.steps.least_disturbed_steps import LeastDisturbedSteps
from kinetoscope.analysis.steps.periods import format_frequency, format_ordinal, format_period
from kinetoscope.analysis.steps.slow_steps import PHASE_LABELS, SlowStepRow
from kinetoscope.analysis.unrecorded_steps import displayed_saving_ns, find_unrecorded_step_ns
from kinetoscope.core.paths.short_paths import short_path
from kinetoscope.core.text.wording import (
    format_count,
    format_flop,
    format_memory,
    format_ms,
    format_percent,
    format_ranges,
    sanitize,
    sanitize_sentence,
    shorten_name,
)
from kinetoscope.pages.page_data import BreakdownPart, DeviceTimes
from kinetoscope.report.labels import (
    HOST_PART_LABELS,
    RESULT_LABELS,
    UNKNOWN,
    VERDICT_LABELS,
    compute_share_of_step,
    format_change,
    format_interval,
    label_bound,
)

_MAX_STEPS, _MAX_NAME_LENGTH, _MAX_PARTS = 6, 60, 3
_CAUSE_LABELS = {
    "data": "slow DataLoader",
    "host": "slow CPU code",
    "device": "slow GPU kernels",
    "processor": "CPU contention",
    "unknown": "unknown cause",
}
_EVIDENCE_LABELS = {"reachable_saving_ns": "saving_by_more_workers_ns"}
"""Names of evidence that a screen would not explain."""

_FIX = re.compile(r": `([^`]+)`")
_SENTENCE_END = re.compile(r"(?<=[.;]) ")
_MIN_SAVING_SHARE = 0.0005
"""Smaller savings are 0 % of a step with one decimal."""

_MIN_SHOWN_NS = 500
"""Shorter times would be formatted as 0.000 ms."""


def select_parts_with_time(breakdown: Iterable[BreakdownPart]) -> list[BreakdownPart]:
    """Return the parts that take time."""
    return [part for part in breakdown if abs(part.time_ns or 0) >= _MIN_SHOWN_NS]


def list_unknown_phases(breakdown: Iterable[BreakdownPart]) -> str:
    """Return the phases whose time is unknown; "" if all are known."""
    unknown = ", ".join(part.label for part in breakdown if part.time_ns is None and part.is_phase)
    return f"{UNKNOWN}: {unknown}" if unknown else ""


def describe_devices(devices: Sequence[DeviceTimes]) -> str:
    """Return the use of GPUs from their first event to their last, for traces without steps."""
    whole, num_devices = devices[0], len(devices) - 1
    of = "GPU" if num_devices == 1 else f"Mean of {num_devices:,} GPUs"
    busy = UNKNOWN if whole.busy_share is None else f"{whole.busy_share:.1%}"
    times = {part.part: part.time_ns for part in whole.parts}
    return (
        f"{of}, ms of the {format_ms(whole.window_ns)} from its first event to its last: busy "
        f"{format_ms(whole.busy_ns)} ({busy}), compute {format_ms(times['compute_ns'])}, exposed communication "
        f"{format_ms(times['exposed_communication_ns'])}, exposed copy {format_ms(times['exposed_copy_ns'])}, idle "
        f"{format_ms(whole.idle_ns)}; communication in total {format_ms(whole.communication_ns)}"
    )


def build_headline(run: RunFacts) -> str:
    """Return the run, its ranks and steps, the step time and what bounds it."""
    num_ranks, num_steps, facts = len(run["ranks"]) or 1, run["num_steps"], run["all_steps"]
    ranks = (
        f"{num_ranks:,} of {format_count(run['world_size'], 'rank')}"
        if run["world_size"] and run["world_size"] != num_ranks
        else format_count(num_ranks, "rank")
    )
    steps = format_count(num_steps, "step") if num_steps else "no step was recorded"
    if num_steps and facts is not None and facts["num_steps"] >= num_steps:
        steps = f"{num_steps:,} of {format_count(facts['num_steps'], 'step')} profiled"
    step = f", {format_ms(run['step_ns'])} ms/step" if run["step_ns"] is not None else ""
    why = f", {bounds}" if step and (bounds := label_bound(run)) else ""
    return f"{sanitize(run['title'] or 'run')}: {ranks}, {steps}{step}{why}"


def describe_all_steps(facts: AllSteps) -> str:
    """Return sentences on all steps, recorded or not: mean, slowest, a change, and recorded steps that differ."""
    slowest = f"slowest {format_ms(facts['max_duration_ns'])} ms (step {facts['slowest_step']:,}"
    if facts["slowest_phase"] is not None:
        slowest += f", mostly {PHASE_LABELS[facts['slowest_phase']]}"
    steps = f"All {format_count(facts['num_steps'], 'step')}" if facts["num_steps"] > 1 else "1 step"
    sentences = [f"{steps}: {format_ms(facts['mean_ns'])} ms on average on the CPU, {slowest})."]
    if facts["changed_at"] is not None and facts["change"] is not None:
        how = "longer" if facts["change"] > 0 else "less"
        sentences.append(
            f"Since step {facts['changed_at']:,} it takes {format_percent(abs(facts['change']))} {how} than before."
        )
    if difference := describe_abnormal_recording(facts, "The recorded steps"):
        sentences.append(difference)
    return " ".join(sentences)


def describe_straggler(row: StragglerRow, num_steps: int) -> str:
    """Return the steps that a rank delays, and the cause."""
    steps = format_frequency(len(row.steps), num_steps, row.period)
    return f"Rank {row.rank} delays {steps}: {_CAUSE_LABELS[row.cause]}"


def locate_slow_step(row: SlowStepRow) -> str:
    """Return the number, phase and source line of a slow step."""
    at = f", {row['line']}" if row["line"] is not None else ""
    return f"{row['step']:,}: {row['phase'].replace('_', ' ')}{at}"


def explain_slow_step(row: SlowStepRow) -> str:
    """Return the known cause of a slow step besides its phase and line; "" without one."""
    regular = f"every {format_ordinal(row['every'])} step" if row["every"] is not None else ""
    machine = "waiting for a CPU" if row["is_machines"] else ""
    return ", ".join(filter(None, [regular, machine]))


def format_ranks_of_slow_step(row: SlowStepRow) -> str:
    """Return the rank on which a step was slow, and the number of further ones."""
    others = len(row["ranks"]) - 1
    return f"{row['rank']} and {others} more" if others else str(row["rank"])


def describe_throughput(run: RunFacts) -> Iterable[str]:
    """Yield the samples and tokens per second of a rank, where its loop counts them."""
    rates = {"samples": run["samples_per_s"], "tokens": run["tokens_per_s"]}
    rates_text = [f"{rate:,.4g} {what}/s" for what, rate in rates.items() if rate is not None]
    if rates_text:
        yield f"Throughput per rank: {' and '.join(rates_text)}"


def describe_computation(run: RunFacts) -> Iterable[str]:
    """Yield lines on FLOP/s, MFU and tensor cores."""
    if run["flops_per_step"] is not None:
        yield _describe_flops(run, run["flops_per_step"])
    if line := describe_tensor_cores(run):
        yield line


def describe_tensor_cores(run: RunFacts) -> str | None:
    """Return the share of kernel time on tensor cores, as far as names show it; None if no name does."""
    share, coverage = run["tensor_core_share"], run["tensor_core_coverage"]
    if share is None or coverage is None:
        return None
    of, uncovered = "of the time of kernels that compute", format_percent(1 - coverage, 1)
    if coverage == 1:
        return f"Tensor cores: kernels that use them take {format_percent(share, 1)} {of}"
    if not share:
        return f"Tensor cores: no kernel is known to use them; for {uncovered} {of}, names do not tell"
    share_text = format_percent(share, 1)
    return (
        f"Tensor cores: kernels that use them take at least {share_text} {of}; for {uncovered} of it, names do not tell"
    )


def _describe_flops(run: RunFacts, flops: float) -> str:
    """Return FLOP per step, FLOP/s and MFU, with the share of matmuls that they are known for."""
    rate = f"{format_flop(run['flops_per_s'])}/s" if run["flops_per_s"] is not None else f"FLOP/s {UNKNOWN}"
    share = f", {format_percent(run['mfu'], 1)} of the GPU's peak (MFU)" if run["mfu"] is not None else ""
    covered = run["mfu_coverage"]
    of = f"; known for {format_percent(covered)} of the time of matmuls" if covered is not None else ""
    return f"{format_flop(flops)} per step per rank: {rate}{share}{of}"


def describe_in_one_line(finding: Finding, run: RunFacts) -> str:
    """Return a minor finding as one line."""
    return f"{sanitize_sentence(finding.title)}: {describe_worth(finding, run)}"


def describe_finding(finding: Finding, run: RunFacts | None = None, folder: str = "") -> Iterable[str]:
    """Yield the lines below the title of a finding; ``folder`` is that of the run, "" if unknown."""
    yield describe_worth(finding, run)
    period = format_period(finding.period)
    if location := "; ".join(
        filter(None, ["" if period in finding.title else period, _describe_location(finding.where)])
    ):
        yield location
    yield sanitize_sentence(build_advice(finding, run, folder))
    yield finding.link


def list_warnings(report: RunReport) -> list[str]:
    """Return sentences that come before any number: an incomplete run or trace, and CPU contention with its effect."""
    run = report.run
    ended = [text] if (text := unfinished_notice(run)) else []
    contention = build_contention_notes(run["contention"]) if run["contention"] is not None else []
    notes = [note for note in run["notes"] if note in report.why_unjudged or note in contention]
    steps = run["least_disturbed_steps"]
    return [*ended, *notes, *([] if steps is None else [_describe_least_disturbed_steps(steps)])]


def _describe_least_disturbed_steps(steps: LeastDisturbedSteps) -> str:
    parts = [
        f"{HOST_PART_LABELS[name]} {format_ms(time_ns)} ms {format_percent(time_ns / steps['step_ns'])}"
        for name, time_ns in list(steps["parts"].items())[:_MAX_PARTS]
    ]
    return (
        f"The {steps['num_steps']:,} least disturbed of {format_count(steps['num_known'], 'step')} waited for a CPU "
        f"{format_percent(steps['delay_share'])} of their time (all: {format_percent(steps['usual_delay_share'])}), "
        f"and took {format_ms(steps['step_ns'])} ms on the CPU, without the time between steps: {', '.join(parts)}."
    )


def build_advice(finding: Finding, run: RunFacts | None, folder: str) -> str:
    """Return the advice, the measured gain, and the command that measures it; ``folder`` is that of the run."""
    parts = [finding.advice, explain_saving(finding, run), describe_measurement(finding)]
    if is_triable(finding, run and run["step_ns"]):
        parts.append(f"Measure it: `{format_try_command(finding.id, folder)}`")
    return " ".join(filter(None, parts))


def explain_saving(finding: Finding, run: RunFacts | None = None) -> str:
    """Return a sentence on a finding that saves nothing, or less by more workers alone; "" for others."""
    share, reachable_share = finding.saving_share, finding.reachable_share
    if share is None or reachable_share is None:
        return ""
    if share < _MIN_SAVING_SHARE:
        return _explain_no_saving(finding, run)
    if not finding.is_upper_bound:
        return ""
    if reachable_share < _MIN_SAVING_SHARE:
        return "More workers alone would save nothing."
    saving_ns = finding.saving_ns_per_step if run is None else displayed_saving_ns(finding, run)
    reachable = f"{format_ms(reachable_share / share * (saving_ns or 0))} ms/step ({format_percent(reachable_share)})"
    too_little = "" if is_triable(finding) else ", too little for `kinetoscope try` to measure"
    return f"More workers alone would save about {reachable}{too_little}."


def _explain_no_saving(finding: Finding, run: RunFacts | None) -> str:
    """Return the reason why a finding is listed that saves nothing."""
    cost, max_ns = format_ms(finding.cost_ns_per_step), dict(finding.evidence).get("max_saving_ns")
    step_ns = run["step_ns"] if run is not None else None
    if max_ns:
        return f"It saves nothing now, and is listed because it may save up to {format_ms(max_ns)} ms/step."
    if step_ns and (finding.saving_ns_per_step or 0) >= _MIN_SAVING_SHARE * step_ns:
        return (
            f"It is listed for its {cost} ms of a recorded step. Recording itself takes as much, so that a step "
            "without recording gains nothing."
        )
    return f"It is listed for its cost of {cost} ms/step. A step gains nothing without it: other work takes that time."


def describe_saving_basis(findings: Iterable[Finding], run: RunFacts) -> str:
    """Return a sentence on the step that savings are shares of, if it is not the recorded one; else ""."""
    unrecorded_ns = find_unrecorded_step_ns(run)
    if unrecorded_ns is None or all(finding.saving_share is None for finding in findings):
        return ""
    recorded = format_ms(run["step_ns"])
    return (
        f"Savings are of a step without recording ({format_ms(unrecorded_ns)} ms), times in titles and costs of a "
        f"recorded one ({recorded} ms)."
    )


def find_public_folder(report: RunReport) -> str:
    """Return the path of the run's folder below the working directory; "" elsewhere: pages name no folder above it."""
    path = short_path(Path(report.folder)) if report.folder else ""
    return "" if os.path.isabs(path) else path


def format_try_command(fix: str, folder: str) -> str:
    """Return the command that measures a fix of the run in ``folder``; "" leaves a placeholder.

    Only a hash of the user's command is kept, so it has to be filled in.
    """
    return f"kinetoscope try --run {quote(folder) if folder else 'RUN'} --fix {fix} -- <your command>"


def describe_measurement(finding: Finding) -> str:
    """Return the measured change of a step by the best variant for a finding; "" if none was measured."""
    measured = finding.measured
    if measured is None:
        return ""
    interval, verdict = format_interval(measured.interval), VERDICT_LABELS[measured.verdict]
    results = "" if measured.results is None else f"; results: {RESULT_LABELS[measured.results]}"
    return (
        f"Measured: `{measured.variant}` changes the step by {format_change(measured.change)} (95 % CI {interval}), "
        f"{verdict}{results}."
    )


def describe_fix(finding: Finding) -> str:
    """Return the fix as one line: code between backticks, else the first sentence of the advice."""
    code = find_fix_code(finding)
    return f"Fix: `{code}`" if code else f"Fix: {_SENTENCE_END.split(finding.advice, maxsplit=1)[0]}"


def find_fix_code(finding: Finding) -> str:
    """Return the code of the fix, to be copied; "" where advice has none.

    Code in advice is between backticks; the first after a colon is the fix.
    """
    code = _FIX.search(finding.advice)
    return code[1] if code else ""


def split_code(text: str) -> list[tuple[str, bool]]:
    """Split sentences with code between backticks into pairs of a text and whether it is code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # an unpaired backtick, as in a foreign name, marks no code
        return [(text, False)]
    return [(piece, index % 2 == 1) for index, piece in enumerate(pieces) if piece]


def describe_evidence(finding: Finding) -> str:
    """Return the numbers that a finding rests on; "" without any."""
    pairs = [_format_evidence(_EVIDENCE_LABELS.get(name, name), value) for name, value in finding.evidence]
    numbers = [f"{name.replace('_', ' ')} {value}" for name, value in pairs]
    return f"Evidence: {', '.join(numbers)}" if numbers else ""


def _format_evidence(name: str, value: float) -> tuple[str, str]:
    """Return a name without its unit, and the number with it."""
    if name.endswith("_ns"):
        return name.removesuffix("_ns"), f"{format_ms(value)} ms"
    if "bytes" in name:
        return name.replace("_bytes", "").replace("bytes_", ""), format_memory(round(value))
    if "share" in name or name.endswith("_percent"):
        return name.removesuffix("_percent"), format_percent(value / 100 if name.endswith("_percent") else value)
    return name, f"{value:,.4g}"


def describe_saving(finding: Finding, run: RunFacts) -> str:
    """Return the estimated saving of a finding, as the end of a sentence after its title; "" without one."""
    saving_ns = displayed_saving_ns(finding, run)
    if not saving_ns:
        return ""
    of_step = "" if find_unrecorded_step_ns(run) is None else " without recording"
    return f"estimated saving{' up to' if finding.is_upper_bound else ''} {format_ms(saving_ns)} ms/step{of_step}"


def describe_worth(finding: Finding, run: RunFacts | None = None) -> str:
    """Return the cost and the estimated saving of a finding, with their shares of a step, and its confidence."""
    saving_ns = finding.saving_ns_per_step if run is None else displayed_saving_ns(finding, run)
    cost_share = None if run is None else compute_share_of_step(finding.cost_ns_per_step, run, finding.kind)
    saving_share = None if run is None else finding.saving_share
    are_of_one_step = saving_ns is None or run is None or find_unrecorded_step_ns(run) is None
    up_to = " up to" if finding.is_upper_bound else ""
    times = [
        ("cost", finding.cost_ns_per_step, cost_share, "" if are_of_one_step else " with recording"),
        (f"estimated saving{up_to}", saving_ns, saving_share, "" if are_of_one_step else " without recording"),
    ]
    worth = [
        f"{name} {format_ms(time_ns)} ms/step{'' if share is None else f' ({share:.0%})'}{of_step}"
        for name, time_ns, share, of_step in times
        if time_ns is not None
    ]
    return ", ".join([*worth, f"confidence {finding.confidence}"])


def _describe_location(where: Where) -> str:
    """Return the ranks, steps, modules, spans and source lines of a finding."""
    numbers = {"rank": format_ranges(where.ranks), "step": format_ranges(where.steps, _MAX_STEPS)}
    phrases = [f"{what}{'' if named.isdecimal() else 's'} {named}" for what, named in numbers.items() if named]
    for what, names in {"in": where.modules, "at": where.spans, "line": where.lines}.items():
        if names:
            plural = "s" if what == "line" and len(names) > 1 else ""
            phrases.append(f"{what}{plural} {', '.join(shorten_name(name, _MAX_NAME_LENGTH) for name in names)}")
    return "; ".join(phrases)
