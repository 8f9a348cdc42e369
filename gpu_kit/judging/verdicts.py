"""Verdicts on the results: findings against planted faults, predicted against measured gains, MFU, costs, traces."""

import traceback
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import kinetoscope
from gpu_kit.judging.results import Results, TaskResult, read_text
from gpu_kit.parts import PROGRAMS, Fault
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.run_report import RunReport

MACHINE_KIND = "processor_contention"
"""Kind of a finding on what else the machine does: it is no finding on a planted program."""

FAULTS_FOLDER = Path(__file__).parents[1] / "faults"


def judge(results: Results) -> dict[str, Any]:
    """Return all verdicts as JSON: lists of rows, and the checks that were skipped or failed."""
    faults = [_judge_program(task) for task in results.select_part("faults")]
    checked, not_checked = _check_traces(results)
    environment = results.environment
    return {
        "date": results.content["date"],
        "kit": results.content["kit"],
        "device": results.content["device"],
        "elapsed_s": results.content["elapsed_s"],
        "environment": environment,
        "tests": _find_tests(results),
        "faults": [row for row in faults if row["expected"]],
        "healthy": [row for row in faults if not row["expected"]],
        "mfu": [_judge_mfu(task) for task in results.select_part("hardware") if task.name != "nvml"],
        "nvml": next((task.values for task in results.select_part("hardware") if task.name == "nvml"), None),
        "overhead": [task.values for task in results.select_part("overhead") if "slow_down" in task.values],
        "first_windows": {
            task.name.removeprefix("first_window_"): task.values
            for task in results.select_part("overhead")
            if "open_ns" in task.values
        },
        "ranks": [_judge_ranks(task) for task in results.select_part("ranks")],
        "traces": checked,
        "skipped": [*_list_skipped(results), *not_checked],
        "failed": [*_list_failed(results, faults), *results.notes],
    }


# -- planted faults


def _judge_program(task: TaskResult) -> dict[str, Any]:
    fault = PROGRAMS[task.name]
    row: dict[str, Any] = {"program": task.name, "title": fault.title, "expected": list(fault.kinds)}
    row |= _read_times(task.values.get("times") or {})
    report, row["error"] = _analyze(task.folder / "run")
    if report is not None:
        row |= {"num_steps": report.run["num_steps"], "num_kernels": sum(one.num_calls for one in report.kernels)}
        row |= {"step_ns": report.run["step_ns"], "bound_by": report.run["bound_by"]}
        findings = [finding for finding in report.findings if finding.kind != MACHINE_KIND]
        row["is_cpu_contended"] = len(findings) < len(report.findings)
        row["findings"] = [_make_row(finding) for finding in findings]
        row |= _compare(fault, findings, row)
    return row


def _analyze(run: Path) -> tuple[RunReport | None, str]:
    """Return the report on a recording, or the reason why there is none."""
    if not any(run.rglob("ep*.json*")):
        return None, "nothing was recorded"
    try:
        return kinetoscope.analyze(run, cache=False), ""
    except Exception as error:
        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}"


def _read_times(times: dict[str, Any]) -> dict[str, Any]:
    """Return the unprofiled times of both variants, each the mean of its turns; and the growth of memory."""
    turns = times.get("turns") or []
    found: dict[str, Any] = {}
    for variant in ("faulty", "fixed"):
        of_variant = [turn for turn in turns if turn["variant"] == variant]
        steps = [turn["step_ns"] for turn in of_variant if turn.get("step_ns")]
        found[f"{variant}_ns"] = mean(steps) if steps else None
        sizes = [turn["bytes_per_step"] for turn in of_variant if turn.get("bytes_per_step") is not None]
        found[f"{variant}_bytes_per_step"] = mean(sizes) if sizes else None
        found[f"{variant}_is_out_of_memory"] = any(turn.get("out_of_memory") for turn in of_variant)
    return found


def _compare(fault: Fault, findings: list[Finding], row: dict[str, Any]) -> dict[str, Any]:
    """Compare the top finding with the planted fault, and its estimated saving with the measured gain."""
    if not fault.kinds:
        return {"false_alarms": [finding.kind for finding in findings if finding.confidence == "high"]}
    first = findings[0] if findings else None
    of_fault = next((finding for finding in findings if finding.kind in fault.kinds), None)
    lines = find_fault_lines(fault.program)
    found: dict[str, Any] = {
        "is_named": first is not None and first.kind in fault.kinds,
        "rank_of_fault": findings.index(of_fault) + 1 if of_fault else None,
        "line": next((line for line in _file_lines(of_fault) if line in lines), None),
        "predicted_ns": of_fault.saving_ns_per_step if of_fault else None,
    }
    faulty, fixed = row["faulty_ns"], row["fixed_ns"]
    found["measured_ns"] = faulty - fixed if faulty is not None and fixed is not None and fault.has_saving else None
    predicted, measured = found["predicted_ns"], found["measured_ns"]
    found["ratio"] = predicted / measured if predicted is not None and measured else None
    evidence = dict(of_fault.evidence) if of_fault else {}
    found["predicted_bytes_per_step"] = evidence.get("bytes_per_step")
    found["steps_until_full"] = evidence.get("steps_until_full")
    return found


def _make_row(finding: Finding) -> dict[str, Any]:
    names = ("kind", "title", "confidence", "cost_ns_per_step", "saving_ns_per_step")
    return {name: getattr(finding, name) for name in names} | {"lines": _file_lines(finding)}


def _file_lines(finding: Finding | None) -> list[str]:
    return [line.rpartition("/")[2] for line in finding.where.lines] if finding else []


def find_fault_lines(program: str) -> set[str]:
    """Return the lines of a program that are at fault, as findings name them."""
    text = (FAULTS_FOLDER / f"{program}.py").read_text(encoding="utf-8")
    return {f"{program}.py:{number}" for number, line in enumerate(text.splitlines(), 1) if line.endswith("# FAULT")}


# -- hardware and ranks


def _judge_mfu(task: TaskResult) -> dict[str, Any]:
    """Compare the recorded FLOPs with the formula, and the recorded MFU with the rate of unprofiled steps."""
    values = task.values
    row = {"name": task.name, **{name: values.get(name) for name in ("formula_flops", "counted_flops", "step_ns")}}
    report, row["error"] = _analyze(task.folder / "run")
    if report is not None:
        names = ("flops_per_step", "flops_per_s", "mfu", "mfu_coverage")
        row |= {f"recorded_{name}": report.run[name] for name in names} | {"recorded_step_ns": report.run["step_ns"]}
    if row["formula_flops"] and row["step_ns"]:
        row["measured_flops_per_s"] = row["formula_flops"] / row["step_ns"] * 1e9
        if row.get("recorded_mfu") and row.get("recorded_flops_per_s"):
            row["measured_mfu"] = row["measured_flops_per_s"] * row["recorded_mfu"] / row["recorded_flops_per_s"]
    return row


def _judge_ranks(task: TaskResult) -> dict[str, Any]:
    backend = task.values.get("backend")
    row: dict[str, Any] = {"backend": backend, "exit_codes": task.values.get("exit_codes")}
    if "nccl" in (row["exit_codes"] or {}) and backend != "nccl":
        lines = read_text(task.folder / "nccl.txt").splitlines()
        row["nccl_error"] = next((line for line in reversed(lines) if "uplicate GPU" in line or "NCCL" in line), None)
    report, row["error"] = _analyze(task.folder / str(backend))
    if report is not None:
        row |= {"num_ranks": len(report.run["ranks"]), "num_collectives": len(report.collectives)}
        row["findings"] = [_make_row(finding) for finding in report.findings]
        stragglers = [finding for finding in report.findings if finding.kind == "straggler"]
        row["straggler_ranks"] = list(stragglers[0].where.ranks) if stragglers else []
    return row


# -- tests, traces, and what is missing


def _find_tests(results: Results) -> dict[str, Any]:
    return next((task.values.get("tests") or {} for task in results.select_part("tests")), {})


def _check_traces(results: Results) -> tuple[list[dict[str, Any]], list[str]]:
    """Load every trace into Perfetto's trace processor; return its errors, and the checks that could not be made."""
    traces = [
        (f"{task.name}/{path.name}", path) for task in results.tasks for path in sorted(_list_traces(task.folder))
    ]
    try:
        from tests.support.trace_processor import trace_processor
    except ImportError as error:
        return [], [f"Perfetto's check of {len(traces)} traces: {error}"]
    if trace_processor.MISSING:
        return [], [f"Perfetto's check of {len(traces)} traces: {trace_processor.MISSING} is not installed"]
    rows = []
    for name, path in traces:
        with trace_processor.load(path) as trace:
            [counted] = trace.query("select count(*) as num_slices from slice")
            rows.append({"trace": name, "errors": trace.errors(), "num_slices": counted["num_slices"]})
    return rows, []


def _list_traces(folder: Path) -> Iterator[Path]:
    for pattern in ("**/ep*.json*", "traces/*.json", "*.json.gz"):
        yield from folder.glob(pattern)


def _list_skipped(results: Results) -> Iterator[str]:
    for task in results.tasks:
        if task.status in ("skipped", "not started"):
            yield f"{task.part}/{task.name}: {task.status}: {task.reason}"
    for name, test in _find_tests(results).items():
        if test["outcome"] == "skipped":
            yield f"{name}: {test.get('reason', '')}"
    for part, record in results.content["parts"].items():
        for task in record["tasks"].values():
            yield from (f"{part}: not kept: {left_out}" for left_out in task.get("left_out", ()))


def _list_failed(results: Results, faults: list[dict[str, Any]]) -> Iterator[str]:
    for task in results.tasks:
        if task.status not in ("done", "skipped", "not started"):
            yield f"{task.part}/{task.name}: {task.status}: {task.reason}"
    for name, test in _find_tests(results).items():
        if test["outcome"] not in ("passed", "skipped"):
            yield f"{name}: {test['outcome']}: {test.get('reason', '')[-300:]}"
    yield from (f"{row['program']}: {row['error']}" for row in faults if row.get("error"))
