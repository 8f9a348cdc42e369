"""`kinetoscope.analyze`: the report on a run, from summaries of each window of each rank."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import cache as cached
from functools import partial
from typing import Any, TypeGuard

from kinetoscope.analysis.compressed_pickle import packed_map_function
from kinetoscope.analysis.findings.confidence import cap_at_medium
from kinetoscope.analysis.findings.evidence.recording import RunRows
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.judgement import Judgement, judge_pulse, judge_run
from kinetoscope.analysis.findings.measured_gains import find_measured
from kinetoscope.analysis.findings.notes import build_loader_notes, build_replay_notes
from kinetoscope.analysis.findings.ranking import rank
from kinetoscope.analysis.joined_run import JoinedRun
from kinetoscope.analysis.labels import run_title
from kinetoscope.analysis.rank_sample import build_sample_notes, is_large, ranks_to_replay
from kinetoscope.analysis.ranks.contention import build_contention_notes
from kinetoscope.analysis.replay.replay import ReplayGraph
from kinetoscope.analysis.report_cache import CachedReport
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.steps.all_steps import build_period_notes, fetch_ratio, summarize_all_steps, usual_times_ns
from kinetoscope.analysis.steps.slow_steps import slow_step_rows
from kinetoscope.analysis.summaries import (
    Selection,
    SummedTrace,
    last_common_step,
    read_end_of_recording,
    starts_of_last_seconds,
    sum_trace,
)
from kinetoscope.analysis.unrecorded_steps import add_note_on_abnormal_steps, subtract_recording_cost
from kinetoscope.core.paths.attempt_folders import resolve_run_folder
from kinetoscope.formats.anonymizer import STEP, Anonymizer
from kinetoscope.formats.experiments import read_experiments
from kinetoscope.frames.all_steps import (
    anonymize_slow_steps,
    anonymize_stuck_phases,
    find_attempt_pulses,
    find_run_pulses,
    read_run_slow_steps,
    read_run_stuck_phases,
)
from kinetoscope.frames.load import STDIN, PathLike, build_attempt_notes, is_url, list_traces, load_one
from kinetoscope.frames.trace import Trace
from kinetoscope.frames.trace_set import TraceSet
from kinetoscope.pulse.pulses import Pulse

Source = PathLike | Trace


def analyze(
    source: Source | Iterable[PathLike] | Iterable[Trace] | TraceSet,
    *,
    step: str | None = None,
    ranks: Iterable[int] | None = None,
    last_s: float | None = None,
    attempt: int | None = None,
    executor: Executor | None = None,
    cache: bool = True,
) -> RunReport:
    """Analyze where the time of a run went.

        report = kinetoscope.analyze("runs/digits")
        print(report.steps[0].data_wait_ns)

    Args:
        source: what `kinetoscope.load` takes, or traces that it returned.
        step: name of the spans that are steps, if not ``event/batch`` or ``ProfilerStep``. Anything recorded before the
            first of them and after the last one is left out.
        ranks: the ranks to analyze, all by default.
        last_s: with it, only the last seconds that each rank recorded are analyzed.
        attempt: number of the attempt of a run that was restarted. By default it is the last one, and a note says so.
        executor: runs the analysis of several traces: its processes, or the workers of a Dask cluster
            (``client.get_executor()``), read the files and send back a summary of each.
        cache: whether traces and the report are read from the user's cache, and written to it.

    Returns:
        The report.

    Raises:
        TraceFileError: if there is no trace, or one cannot be read.
        MergeError: if the traces are of different runs.
    """
    selection = Selection(step=step, ranks=None if ranks is None else frozenset(ranks), last_s=last_s, attempt=attempt)
    sources = [source] if isinstance(source, (str, os.PathLike, Trace)) else source
    return analyze_sources(sources, selection, packed_map_function(executor), cache=cache)


def analyze_sources(
    sources: Iterable[Source],
    selection: Selection,
    map_function: Callable[..., Iterable[Any]] = map,
    *,
    cache: bool = True,
    with_graph: bool = False,
    notes: Iterable[str] = (),
    titled_by: Sequence[Source] | None = None,
    anonymizer: Anonymizer | None = None,
) -> RunReport:
    """Analyze sources into one report.

    Args:
        sources: each as `analyze` takes one.
        selection: the part of the run to analyze.
        map_function: equivalent of `map`; where the values are names of files, it may pass ``on_bytes``, too.
        cache: as in `analyze`.
        with_graph: whether the replay graph will be used, which a cached report does not have.
        notes: notes besides those on the traces.
        titled_by: sources whose title the report has, if ``sources`` are a part of them.
        anonymizer: anonymizer of the traces, for names in the other files of the run's folder.
    """
    sources = list(sources)
    found = [one for source in sources for one in _list_traces(source, selection.attempt)]
    notes = [*notes, *(note for source in sources for note in build_attempt_notes(source, selection.attempt))]
    if anonymizer is not None:
        notes = [*map(anonymizer.sentence, notes)]
        selection = selection if selection.step is None else replace(selection, step=STEP)
    report = _read_or_analyze(found, selection, map_function, cache=cache, with_graph=with_graph)
    title = report.run["name"] if anonymizer else run_title(titled_by or sources, report.run["name"])
    report = _add_all_steps(report, titled_by or sources, selection.attempt, anonymizer)
    report = _add_measured(report, titled_by or sources, anonymizer)
    return replace(report, run=report.run | {"title": title, "notes": [*notes, *report.run["notes"]]})


def _add_all_steps(
    report: RunReport, sources: Sequence[Source], attempt: int | None, anonymizer: Anonymizer | None
) -> RunReport:
    """Add the facts of the pulses of a run on all its steps. They are not cached: a pulse is read quickly."""
    source = sources[0] if len(sources) == 1 else None
    if source is None or isinstance(source, Trace):
        return report
    pulses, earlier = find_attempt_pulses(source, attempt)
    stuck, kept_steps = read_run_stuck_phases(source, pulses), read_run_slow_steps(source, pulses)
    if anonymizer is not None:
        stuck, kept_steps = anonymize_stuck_phases(stuck, anonymizer), anonymize_slow_steps(kept_steps, anonymizer)
    report = _add_unrecorded_steps(report, pulses, earlier)
    about = report.run["all_steps"]
    if about is None:
        return add_findings(report, judge_pulse(stuck))
    findings = add_note_on_abnormal_steps(report.findings, about, report.run["step_ns"] or 0.0)
    slow = slow_step_rows(kept_steps)
    found = judge_pulse(stuck, slow, about["num_steps"], about["mean_ns"])
    report = replace(report, findings=findings, run=report.run | {"slow_steps": slow})
    return add_findings(report, found)


def _add_measured(report: RunReport, sources: Sequence[Source], anonymizer: Anonymizer | None) -> RunReport:
    """Add the folder of a run, and the gains that `kinetoscope try` has measured for its findings."""
    source = sources[0] if len(sources) == 1 else None
    if source is None or isinstance(source, Trace) or not os.path.isdir(source):
        return report
    folder = resolve_run_folder(source)
    report = replace(report, folder="" if anonymizer else str(folder))
    experiments = read_experiments(folder)
    if not experiments:
        return report
    measured = [find_measured(finding.id, finding.kind, experiments) for finding in report.findings]
    pairs = zip(report.findings, measured, strict=True)
    return replace(report, findings=[replace(finding, measured=one) for finding, one in pairs])


def _add_unrecorded_steps(report: RunReport, pulses: Sequence[Pulse], earlier: Sequence[Pulse] = ()) -> RunReport:
    """Add all steps of the run, and subtract the cost of recording from shares of savings."""
    about = summarize_all_steps(pulses, report.steps, report.run["num_steps"], earlier)
    if about is None:
        return report
    ratio = fetch_ratio(pulses, report.steps)
    findings = subtract_recording_cost(report.findings, about, report.run["step_ns"], ratio)
    notes = [*build_period_notes(pulses, report.steps), *report.run["notes"]]
    run = report.run | {"all_steps": about, "notes": notes}
    unrecorded_ns, usual_ns = (
        usual_times_ns(pulses, report.steps, with_recorded=first_items) for first_items in (False, True)
    )
    return replace(report, findings=findings, run=run, unrecorded_ns=unrecorded_ns, usual_ns=usual_ns)


def add_findings(report: RunReport, added: Sequence[Finding]) -> RunReport:
    """Return the report with further findings, which no replay fixes, ranked among the others."""
    return replace(report, findings=rank([*report.findings, *added], report.run["step_ns"] or 0.0))


def _read_or_analyze(
    found: Sequence[str | Trace],
    selection: Selection,
    map_function: Callable[..., Iterable[Any]],
    *,
    cache: bool,
    with_graph: bool,
) -> RunReport:
    kept = CachedReport.of(found, selection) if cache else None
    if kept is not None and not with_graph and (rows := kept.read()) is not None:
        analyze_once = cached(lambda: _analyze_traces(found, selection, map, cache=True))
        return RunReport(**vars(rows), build_graph=lambda: analyze_once().graph)
    report = _analyze_traces(found, selection, map_function, cache=cache)
    if kept is not None:
        kept.write(report)
    return report


def _analyze_traces(
    sources: Sequence[str | Trace], selection: Selection, map_function: Callable[..., Iterable[Any]], *, cache: bool
) -> RunReport:
    if not is_large(sources):
        return build_run_report(_summarize_traces(sources, selection, map_function, cache=cache))
    whole, sample, last_step = _analyze_without_replay(sources, selection, map_function, cache=cache)
    selection = replace(selection, last_step=last_step)
    part = build_run_report(_summarize_traces(sample, selection, map_function, cache=cache), is_sample=True)
    of_part = [*build_replay_notes(part.graph), *build_loader_notes(part.graph, part.findings)]
    notes = [*whole.run["notes"], *build_sample_notes(whole), *of_part]
    run = whole.run | {"notes": notes, "contention": part.run["contention"]}
    whole = replace(whole, run=run, build_graph=part.build_graph)
    return replace(whole, findings=part.findings, is_judged=part.is_judged) if whole.is_judged else whole


def _analyze_without_replay(
    sources: Sequence[str | Trace], selection: Selection, map_function: Callable[..., Iterable[Any]], *, cache: bool
) -> tuple[RunReport, list[str | Trace], int | None]:
    """Return the report on a large run without a replay, the sources to replay, and the last step of truncated files.

    The report has no findings; ``is_judged`` is whether it may have some.
    """
    traces = _summarize_traces(sources, selection, map_function, cache=cache, with_graph=False)
    report = build_run_report(traces)
    report = replace(report, is_judged=not report.why_unjudged)
    ranks = ranks_to_replay(report)
    is_in = [trace.rank is None or trace.rank in ranks for trace in traces]
    sample = [source for source, wanted in zip(sources, is_in, strict=True) if wanted]
    return report, sample, traces[0].last_step


def analyze_into_cache(names: Sequence[str], run: PathLike) -> RunReport:
    """Analyze the named traces in the folder ``run``, and write the report to the user's cache.

    Unlike `analyze_sources`, it does not cache the traces as columns, which takes time and far more space.
    """
    selection = Selection()
    kept = CachedReport.of(names, selection)
    rows = kept.read() if kept is not None else None
    report = RunReport(**vars(rows)) if rows is not None else _analyze_traces(names, selection, map, cache=False)
    if kept is not None and rows is None:
        kept.write(report)
    return replace(_add_unrecorded_steps(report, find_run_pulses(run)), folder=os.path.abspath(run))


def _list_traces(source: Source, attempt: int | None) -> Sequence[str | Trace]:
    return [source] if isinstance(source, Trace) else list_traces(source, attempt)


def _summarize_traces(
    sources: Sequence[str | Trace],
    selection: Selection,
    map_function: Callable[..., Iterable[Any]],
    *,
    cache: bool,
    with_graph: bool = True,
) -> list[SummedTrace]:
    """Return the summary of each trace."""
    work = partial(sum_trace, selection=selection, cache=cache, with_graph=with_graph)
    if selection.last_s is None:
        sources = [load_one(STDIN, cache=cache) if one == STDIN else one for one in sources]
        traces = list(map_function(work, sources))
        last_step = last_common_step(traces)
        if last_step is None or selection.last_step is not None:
            return traces
        return list(map_function(partial(work, selection=replace(selection, last_step=last_step)), sources))
    sources = [load_one(one, cache=cache) if _can_be_read_once(one) else one for one in sources]
    recorded = list(map_function(partial(read_end_of_recording, cache=cache), sources))
    return list(map_function(work, sources, starts_of_last_seconds(recorded, selection.last_s)))


def _can_be_read_once(source: str | Trace) -> TypeGuard[str]:
    return not isinstance(source, Trace) and (source == STDIN or is_url(source))


def build_run_report(traces: Iterable[SummedTrace], *, is_sample: bool = False) -> RunReport:
    """Return the report of a run on its summed traces, or on a sample of them.

    Raises:
        MergeError: if they are of different runs.
    """
    run = JoinedRun.of(traces)
    graph = run.build_graph(is_sample=is_sample)
    report, hints = run.build_report(graph), run.find_hints()
    if run.why_unjudged or graph is None or not run.steps:
        return replace(report, run=report.run | {"hints": hints})
    judgement = judge_run(_select_rows(report), graph, run.evidence, run.straggler_candidates)
    return _add_judgement(report, judgement, run, graph, hints)


def _add_judgement(
    report: RunReport, judgement: Judgement, run: JoinedRun, graph: ReplayGraph, hints: Sequence[str]
) -> RunReport:
    """Add findings and stragglers to a report; hints only where no finding is above low confidence."""
    findings = judgement.findings
    is_contention_found = any(finding.kind == "processor_contention" for finding in findings)
    notes = [*(() if is_contention_found else build_contention_notes(run.contention)), *report.run["notes"]]
    if any(trace.last_step is not None for trace in run.traces):  # a file is truncated
        capped = (replace(finding, confidence=cap_at_medium(finding.confidence)) for finding in findings)
        findings = rank(capped, report.run["step_ns"] or 0.0)
    is_wrong = any(finding.confidence != "low" for finding in findings)
    about = report.run | {
        "notes": [*notes, *build_loader_notes(graph, findings)],
        "hints": [] if is_wrong else [*hints],
    }
    if judgement.waits_for_stages and about["bound_by"] == "communication":
        about = about | {"bound_by": "ranks"}
    return replace(report, run=about, findings=findings, stragglers=[*judgement.stragglers], is_judged=True)


def _select_rows(report: RunReport) -> RunRows:
    """Return the rows that findings are based on."""
    return RunRows(
        ranks=report.run["ranks"],
        world_size=report.run["world_size"],
        num_steps=report.run["num_steps"],
        step_ns=report.run["step_ns"] or 0.0,
        parts=report.run["parts"],
        by_rank=report.ranks,
        steps=report.steps,
        collectives=report.collectives,
        stragglers=report.stragglers,
        operators=report.operators,
        kernels=report.kernels,
        memory=report.memory,
    )
